"""A Flask application. Change it, and it is loaded anew."""

from flask import Flask

app = Flask(__name__)


@app.get("/")
def hello() -> str:
    return "<h1>Hello from Flask</h1>"
