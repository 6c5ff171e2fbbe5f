"""Answers the invocation at hand with an error, and ends the process.

For failures that leave the process in a state nobody knows: code that hangs cannot be interrupted,
and what raised may have broken what it shares with later rollouts. The next invocation finds a
process that has loaded everything anew.
"""

import http.client
import json
import os
import sys
from typing import NoReturn

_PATH = "/2018-06-01/runtime/invocation/{request_id}/error"
_TIMEOUT_S = 5.0
_FAILED = 1


def end_with(error: BaseException, *, runtime_api: str, request_id: str) -> NoReturn:
    """Report an error as Lambda's runtime client does, and end the process; from any thread.

    Args:
        error: What the invocation's caller is told.
        runtime_api: Host and port of Lambda's Runtime API.
        request_id: The invocation's.
    """
    kind = type(error).__name__
    sys.stderr.write(f"{kind}: {error}\n")
    sys.stderr.flush()
    try:
        body = json.dumps({"errorMessage": str(error), "errorType": kind, "stackTrace": []})
        connection = http.client.HTTPConnection(runtime_api, timeout=_TIMEOUT_S)
        headers = {"Lambda-Runtime-Function-Error-Type": kind}
        connection.request(
            "POST", _PATH.format(request_id=request_id), body.encode("utf-8", "replace"), headers
        )
        connection.getresponse().read()
    except Exception as unsaid:  # the process ends all the same, which Lambda reports then
        sys.stderr.write(f"(not reported: {unsaid!r})\n")
        sys.stderr.flush()
    os._exit(_FAILED)
