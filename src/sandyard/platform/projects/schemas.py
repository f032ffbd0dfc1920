"""The bodies and answers of projects, as the OpenAPI document describes them."""

from datetime import datetime

from sandyard.kit.http.schemas import PageAnswer, example
from sandyard.platform.http.fields import Answer, NamedBody, NewNamedBody
from sandyard.platform.projects.model import ProjectStatus


class NewProjectBody(NewNamedBody):
    model_config = example(name="Shop", description="The web shop and its admin pages")


class ProjectBody(NamedBody):
    """Fields that are left out stay as they are."""

    model_config = example(name="Web shop")


class ProjectAnswer(Answer):
    model_config = example(
        project_id="prj-4k8s0m2q6w1c9x7ab",
        name="Shop",
        description="The web shop and its admin pages",
        status="active",
        is_default=False,
        created_at="2026-10-30T09:00:00Z",
        updated_at="2026-10-30T09:00:00Z",
    )

    project_id: str
    name: str
    description: str | None
    status: ProjectStatus
    is_default: bool
    created_at: datetime
    updated_at: datetime


class ProjectPage(PageAnswer):
    projects: list[ProjectAnswer]
    next_cursor: str | None
