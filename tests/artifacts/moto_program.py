"""A program that runs moto's server with the one thing that it lacks: a conditional create that is atomic.

moto looks whether an object is there and then creates it, so that two requests at the same time may both do so; the
service that it stands for lets one of them win. Here such requests are done one after the other. Run by its path, with
the port as its argument.
"""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment

_moto = DomainDispatcherApplication(create_backend_app)
_one_after_the_other = threading.Lock()


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Hand a request on."""
    is_conditional = environ.get("HTTP_IF_NONE_MATCH") == "*"
    with _one_after_the_other if is_conditional else nullcontext():
        answer: Iterable[bytes] = _moto(environ, start_response)
    return answer


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True, request_handler=MotoRequestHandler)
