"""How connections are made secret."""

from __future__ import annotations

import ssl


def context(*, verify: bool, http2: bool) -> ssl.SSLContext:
    """For servers of the web. Without ``verify`` anybody may pretend to be the server."""
    made = ssl.create_default_context()
    if not verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    made.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
    return made


def in_words(problem: Exception, host: str) -> str:
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"the certificate of {host} is not valid: {problem.verify_message}"
    return f"no secure connection to {host}: {getattr(problem, 'reason', None) or problem or type(problem).__name__}"
