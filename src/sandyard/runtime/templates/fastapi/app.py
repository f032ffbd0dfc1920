"""A FastAPI application. Its document is at /docs; change it, and it is loaded anew."""

from fastapi import FastAPI

app = FastAPI()


@app.get("/")
def hello() -> dict[str, str]:
    return {"message": "Hello from FastAPI"}
