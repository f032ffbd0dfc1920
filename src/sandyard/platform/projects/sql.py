"""Projects on SQLite or PostgreSQL."""

from dataclasses import asdict

import sqlalchemy as sa

from sandyard.platform.projects.model import Project
from sandyard.platform.tables import projects


def insert_project(connection: sa.Connection, project: Project) -> None:
    connection.execute(projects.insert().values(asdict(project)))
