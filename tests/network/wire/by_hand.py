"""A member that speaks frames by hand."""

from __future__ import annotations

import socket
import ssl

from securedfl.network.wire import frames
from securedfl.network.wire.frames import HEADER_BYTES, Kind, frame

OPEN: list[socket.socket] = []


class ByHand:
    """A member that speaks frames by hand, well or badly."""

    def __init__(self, port, files, name="p0", version=ssl.TLSVersion.TLSv1_3):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = context.maximum_version = version
        context.load_verify_locations(files.authority)
        context.load_cert_chain(files.certificate, files.key)
        self.raw = socket.create_connection(("127.0.0.1", port), timeout=60)
        OPEN.append(self.raw)
        self.tls = context.wrap_socket(self.raw, server_hostname=name)
        OPEN.append(self.tls)

    def send(self, kind, channel=0, payload=b""):
        self.tls.sendall(frame(kind, channel, payload))

    def read(self):
        """Return the next frame; None if the other side hung up."""
        try:
            head = self._exactly(HEADER_BYTES)
            kind, channel, length = frames.read_header(head)
            return kind, channel, self._exactly(length)
        except (EOFError, OSError):
            return None

    def until(self, kind):
        while True:
            found = self.read()
            if found is None or found[0] is kind:
                return found

    def link(self):
        self.send(Kind.HELLO, 0, bytes([frames.VERSION]))
        assert self.until(Kind.LINK)
        return self

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self.tls.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data
