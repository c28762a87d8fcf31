#!/usr/bin/env python3
"""Asks the Tailrace process of this container whether it is healthy: tailrace-healthy agent|stream|server.

Address and port are those of the environment's settings, such as TAILRACE_AGENT__HEALTH_PORT, else the defaults. It
imports no package, so that a check every few seconds costs nothing. Exit code 1: not healthy, and why.
"""

import os
import ssl
import sys
import urllib.error
import urllib.request

ENDPOINTS = {
    "agent": ("TAILRACE_AGENT__HEALTH", "8083", "/health/ready"),
    "stream": ("TAILRACE_STREAM__METRICS", "8084", "/health/ready"),
    "server": ("TAILRACE_SERVER_", "8085", "/health"),
}
ANY = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - it is not bound here
TLS = "TAILRACE_SERVER__TLS_CERTIFICATE_FILE"
SECONDS = 4.0


def url_of(program: str, environ: "os._Environ[str] | dict[str, str]") -> str:
    """Where the program says how it is."""
    prefix, port, path = ENDPOINTS[program]
    address = environ.get(f"{prefix}_ADDRESS", "127.0.0.1")
    address = ANY.get(address, f"[{address}]" if ":" in address else address)
    scheme = "https" if program == "server" and environ.get(TLS) else "http"
    return f"{scheme}://{address}:{environ.get(f'{prefix}_PORT', port)}{path}"


def main(arguments: list[str]) -> int:
    """The exit code."""
    if len(arguments) != 1 or arguments[0] not in ENDPOINTS:
        sys.stderr.write(f"tailrace-healthy: one argument is needed, of {', '.join(ENDPOINTS)}\n")
        return 2
    url = url_of(arguments[0], os.environ)
    context = ssl._create_unverified_context() if url.startswith("https") else None  # noqa: S323, SLF001 - our own process
    # No proxy of the environment, as Docker gives to containers: it would ask its own machine.
    handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=SECONDS):
            return 0
    except (OSError, urllib.error.URLError) as error:
        sys.stderr.write(f"{url}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
