"""Questions to Headwater."""

import http.client
import json
import urllib.error
import urllib.request

from chance import PORT

BROKEN_OFF = "the answer ends in the middle"


def request(path, body):
    """An error, or the text of an answer."""
    asked = urllib.request.Request(
        f"http://127.0.0.1:{PORT}{path}", data=body.encode(), headers={"Accept": "text/csv"}
    )
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return None, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode(), None
    except http.client.IncompleteRead:
        # What fails behind the first rows can be told in no other way.
        return BROKEN_OFF, None


def done(path, body):
    """What cannot fail."""
    error, answer = request(path, body)
    assert error is None, f"{body[:200]}: {error}"
    return answer


def sql(statement):
    return done("/api/v1/sql", statement)


def compact():
    return done("/api/v1/manage", json.dumps({"op": "compact"}))
