"""The image's health check: exit code 0 while the gateway in this container takes new calls, else 1 and the reason.

Asks the port that HOLESHOT_PORT names, over HTTP and, where that is not spoken, over TLS. The certificate is not
checked: it is for the name that clients use, and this is the loopback.
"""

import os
import ssl
import sys
import urllib.error
import urllib.request
from http.client import HTTPException

TIMEOUT_S = 2.0  # for each of the two ways, within the 5 s that the image allows


def problem(port: str) -> str | None:
    """Return why the gateway on ``port`` is not ready, None when it is."""
    unverified = ssl.create_default_context()
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=unverified))
    opener = urllib.request.build_opener(*handlers)  # without a proxy, whatever the environment says
    failure: Exception | None = None
    for scheme in ("http", "https"):
        try:
            opener.open(f"{scheme}://localhost:{port}/health/ready", timeout=TIMEOUT_S).close()
        except urllib.error.HTTPError as error:
            error.close()
            return f"/health/ready says {error.code}"
        except (OSError, HTTPException) as error:
            failure = failure or error
        else:
            return None
    return str(failure)


if __name__ == "__main__":
    sys.exit(problem(os.environ.get("HOLESHOT_PORT") or "4000"))
