"""Answers the current invocation with an error, and ends the process.

For failures that leave the process in an unknown state: hanging code cannot be interrupted, and an
exception may have corrupted shared objects. The next invocation gets a fresh process.
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
        error: The error for the invocation's caller.
        runtime_api: Host and port of Lambda's Runtime API.
        request_id: The invocation's id.
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
    except Exception as unsaid:  # the process ends anyway, and Lambda reports that
        sys.stderr.write(f"(not reported: {unsaid!r})\n")
        sys.stderr.flush()
    os._exit(_FAILED)
