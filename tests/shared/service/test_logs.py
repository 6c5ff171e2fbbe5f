import logging

import pytest

from shared.service.logs import FieldFormatter, configure_logging


def test_fields_passed_as_extra_are_on_the_line() -> None:
    record = logging.makeLogRecord(
        {"msg": "round %s done", "args": ("x",), "levelname": "INFO", "job": "a b", "actors": 8}
    )
    line = FieldFormatter("%(levelname)s %(message)s").format(record)
    assert line == "INFO round x done job='a b' actors=8"


def test_http_client_chatter_is_silenced(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")
    logging.getLogger("httpx").info("GET /secret")
    logging.getLogger("services.learner").info("hello", extra={"k": 1})
    err = capsys.readouterr().err
    assert "GET" not in err
    assert "hello k=1" in err
    logging.getLogger().handlers.clear()
