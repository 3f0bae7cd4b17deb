"""Why a connection failed, as errors that people can act on.

Whether another try may help is the class of the error; whether anything was sent is its usage: `Usage()` where
nothing can have been billed, None where nobody knows. Texts name the host, never a header or a body.
"""

from __future__ import annotations

from typing import Final

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError, HttpProcessingError

from remit.errors import ModelError, ModelProtocolError, ModelRejected, ModelUnavailable
from remit.messages import Usage

__all__ = ["CONNECT_SECONDS", "broken_off", "no_answer"]

CONNECT_SECONDS: Final = 5.0
"""Within this a connection must stand, its name looked up and its certificate checked."""
_NOTHING_SENT: Final = Usage()


def no_answer(error: Exception, host: str, *, sent: bool) -> ModelError:
    """Why no answer came. `error` is aiohttp's, or one of the operating system; `sent`: there was a connection."""
    if isinstance(error, aiohttp.ClientHttpProxyError | aiohttp.ClientProxyConnectionError):
        return _proxy_fault(error, host)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return ModelRejected(_certificate(error, host), usage=_NOTHING_SENT)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _no_connection(error, host)
    if isinstance(error, TimeoutError) and not sent:
        return ModelUnavailable(
            f"no connection to {host} within {CONNECT_SECONDS:g} seconds: check the base URL, the network, "
            "and whether a proxy has to be named (HTTPS_PROXY, or Connection(proxy=...))",
            usage=_NOTHING_SENT,
        )
    if isinstance(error, HttpProcessingError):
        return ModelProtocolError(
            f"what answers at {host} speaks no HTTP that can be read ({error.message[:200]}): "
            "check the base URL, its port and whether it begins with http:// or https://"
        )
    if isinstance(error, ValueError):
        return ModelRejected(f"a request to {host} cannot be written: {error}", usage=_NOTHING_SENT)
    return broken_off(error, host)


def broken_off(error: Exception, host: str) -> ModelUnavailable | ModelRejected:
    """Why an answer ends before its end."""
    if "CERTIFICATE_REQUIRED" in str(error):
        return ModelRejected(_WANTS_CERTIFICATE.format(host), usage=_NOTHING_SENT)
    if isinstance(error, aiohttp.ClientPayloadError) and _is_encoding(error):
        return ModelUnavailable(
            f"the answer of {host} is not compressed as its content-encoding says: a proxy on the way, or the "
            "server behind the base URL, is at fault"
        )
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return ModelUnavailable(
            f"{host} closed the connection without an answer: check the base URL, and whether it begins with http:// or "
            "https://, and the log of the server if it is yours"
        )
    return ModelUnavailable(f"the connection to {host} broke off: {_words(error)}")


def _is_encoding(error: BaseException) -> bool:
    told: BaseException | None = error
    while told is not None:
        if isinstance(told, ContentEncodingError):
            return True
        told = told.__cause__ or told.__context__
    return "content-encoding" in str(error).lower()


def _no_connection(error: aiohttp.ClientConnectorError, host: str) -> ModelError:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        text = f"the name {host} cannot be looked up: check the base URL and the network"
        return ModelUnavailable(text, usage=_NOTHING_SENT)
    if isinstance(error, aiohttp.ClientSSLError):
        reason = str(getattr(error.os_error, "reason", ""))
        if reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"}:
            text = (
                f"{host} does not speak TLS: let the base URL begin with http://, or check its port"
            )
            return ModelRejected(text, usage=_NOTHING_SENT)
        if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
            return ModelRejected(_WANTS_CERTIFICATE.format(host), usage=_NOTHING_SENT)
    if isinstance(error.os_error, ConnectionRefusedError):
        text = f"nothing listens at {host}: check the base URL, and whether the server is running"
    else:
        text = f"{host} cannot be reached: {_words(error.os_error)}; check the base URL and the network"
    return ModelUnavailable(text, usage=_NOTHING_SENT)


_WANTS_CERTIFICATE: Final = "{} does not take the connection without a certificate of ours: name it by Connection(client_cert=...)"

_CERTIFICATES: Final = {
    9: "its certificate is not valid yet: check the clock of this machine",
    10: "its certificate has expired: whoever runs the server has to renew it; check the clock of this machine too",
    18: "its certificate is signed by itself: name it as trusted by Connection(ca_file=...) if it is yours",
    19: "an authority signed its certificate that is not trusted here: name it by Connection(ca_file=...)",
    20: "an authority signed its certificate that is not trusted here: name it by Connection(ca_file=...)",
    62: "its certificate is made out for another name: check the host in the base URL",
    64: "its certificate is made out for another name: check the host in the base URL",
}
"""By the codes of OpenSSL (`X509_verify_cert_error_string`)."""


def _certificate(error: aiohttp.ClientConnectorCertificateError, host: str) -> str:
    cause = error.certificate_error
    code = getattr(cause, "verify_code", None)
    known = _CERTIFICATES.get(code) if isinstance(code, int) else None
    if known is None:
        told = getattr(cause, "verify_message", "") or _words(cause)
        known = f"its certificate does not hold: {told}"
    return f"{host}: {known}"


def _proxy_fault(
    error: aiohttp.ClientHttpProxyError | aiohttp.ClientProxyConnectionError, host: str
) -> ModelError:
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return ModelUnavailable(
            f"the proxy on the way to {host} cannot be reached: {_words(error.os_error)}; check HTTPS_PROXY and "
            "HTTP_PROXY, or Connection(proxy=...)",
            usage=_NOTHING_SENT,
        )
    if error.status == 407:
        text = f"the proxy on the way to {host} wants a name and a password: http://name:password@host:port"
        return ModelRejected(text, usage=_NOTHING_SENT)
    return ModelUnavailable(
        f"the proxy on the way to {host} does not let the request through: it answered {error.status}",
        usage=_NOTHING_SENT,
    )


def _words(error: BaseException) -> str:
    """What an error says of itself, without the values that aiohttp hangs on it."""
    told = getattr(error, "strerror", None) or str(error)
    return (told or type(error).__name__)[:300]
