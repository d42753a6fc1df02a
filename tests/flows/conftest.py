from tests.checks import remembered_checks

__all__ = ["remembered_checks"]
