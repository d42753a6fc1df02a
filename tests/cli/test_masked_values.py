"""Passwords on the command line: a warning when they are given, masks where they are shown, the value in an export."""

from __future__ import annotations

from pathlib import Path

from tests.cli.commanding import Shell
from weft.redaction import MASK

CANARY = "k4nary-of-the-test"
TASKS = f"""
[[tasks]]
name = "nightly"
kind = "shell"
spec = {{argv = ["true"], env = {{P = "{{{{password}}}}"}}}}
params = {{password = "{CANARY}"}}
"""


def test_a_password_is_masked_where_it_is_shown_and_kept_where_it_is_exported(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "tasks.toml"
    file.write_text(TASKS)
    applied = shell("tasks", "apply", str(file), "--yes")
    assert applied.code == 0
    assert "weft secrets set PASSWORD` and give {{secret:PASSWORD}}" in applied.err
    run = shell("tasks", "run", "nightly", "-p", f"password={CANARY}")
    submitted = shell(
        "runs", "submit", "--kind", "shell", "--spec", f'{{"argv": ["true"], "env": {{"API_KEY": "{CANARY}"}}}}'
    )
    assert "{{secret:API_KEY}}" in submitted.err
    seen = [applied, run, submitted]
    for command in (["tasks", "show", "nightly"], ["runs", "show", "1"], ["runs", "show", "2"], ["runs", "list"]):
        seen += [shell(*command), shell(*command, "--json")]
    assert not [each for each in seen if each.code]
    for each in seen:
        assert CANARY not in each.out + each.err
    assert MASK in seen[3].out
    exported = shell("tasks", "export")
    assert CANARY in exported.out
    again = tmp_path / "again.yaml"
    again.write_text(exported.out.replace(CANARY, MASK))
    assert "nothing to change" in shell("tasks", "apply", str(again), "--yes").out
    shell("tasks", "delete", "nightly", "--yes")
    refused = shell("tasks", "apply", str(again), "--yes")
    assert refused.code
    assert "in place of a secret" in refused.err
