"""The usual packages for data: a table by pandas and its chart by matplotlib, as a picture."""

import io
import os
from http.server import BaseHTTPRequestHandler, HTTPServer

import matplotlib as mpl
import pandas as pd

mpl.use("Agg")


def chart() -> bytes:
    table = pd.DataFrame({"day": range(1, 8), "visits": [12, 18, 9, 22, 31, 40, 37]})
    picture = io.BytesIO()
    table.plot(x="day", y="visits").figure.savefig(picture, format="png")
    return picture.getvalue()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = chart()
        self.send_response(200)
        self.send_header("Content-Type", "image/png")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
