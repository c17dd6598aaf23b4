"""A backend whose device is elsewhere: programs are compiled here and run by another process, over a socket.

    flambeau cts --backend examples/remote_backend.py --suite ops --level core

The device may be slow, or gone: a call that takes too long or loses its connection is an OSError, and `retries` says
how often the suite tries it again. Arrays travel in numpy's own format, without pickle.
"""

import io
import os
import socket
import struct
import subprocess
import sys
import threading

import numpy as np
from backend import Backend as LocalBackend


def send(connection, **arrays):
    """One message: its length, and an .npz file."""
    data = io.BytesIO()
    np.savez(data, **arrays)
    connection.sendall(struct.pack("<Q", data.tell()) + data.getvalue())


def receive(connection):
    (size,) = struct.unpack("<Q", exactly(connection, 8))
    return np.load(io.BytesIO(exactly(connection, size)), allow_pickle=False)


def exactly(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(min(1 << 20, size - len(data)))
        if not more:
            raise ConnectionError("the device hung up")
        data += more
    return data


class Backend(LocalBackend):
    name = "remote"
    retries = 2
    seconds = 60

    def __init__(self):
        self.device = None

    def connection(self):
        """Connect to the device, started if it is not there: on a real one, this is where the lab's address goes."""
        if self.device is None or self.device.poll() is not None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self.device = subprocess.Popen([sys.executable, __file__, "serve"], text=True, **pipes)
            self.port = int(self.device.stdout.readline())
        return socket.create_connection(("127.0.0.1", self.port), timeout=self.seconds)

    def run(self, artefact, function, inputs):
        with self.connection() as connection:
            program = np.frombuffer(artefact, np.uint8)
            send(
                connection, program=program, function=np.array(function), **{f"in{i}": x for i, x in enumerate(inputs)}
            )
            answer = receive(connection)
        if "error" in answer:
            raise RuntimeError(str(answer["error"]))
        return [answer[f"out{i}"] for i in range(len(answer.files))]


def serve():
    """Serve on the device: take a program and arrays, and give arrays or an error; end with the client."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            connection, _ = server.accept()
            with connection:
                try:
                    asked = receive(connection)
                    inputs = [asked[f"in{i}"] for i in range(len(asked.files) - 2)]
                    results = LocalBackend().run(asked["program"].tobytes(), str(asked["function"]), inputs)
                    send(connection, **{f"out{i}": np.asarray(r) for i, r in enumerate(results)})
                except ConnectionError:
                    continue
                except Exception as error:
                    send(connection, error=np.array(str(error)))


if __name__ == "__main__" and sys.argv[1:] == ["serve"]:
    serve()
