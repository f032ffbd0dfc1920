"""The bodies and answers of templates, as the OpenAPI document describes them."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictInt, StrictStr

from sandyard.kit.http.schemas import PageAnswer, example
from sandyard.platform.http import fields
from sandyard.platform.templates import model
from sandyard.runtime.network_model import Network

Cpu = Annotated[float, Field(strict=True, ge=model.MIN_CPU, le=model.MAX_CPU, description="vCPU")]
Memory = Annotated[
    float, Field(strict=True, ge=model.MIN_MEMORY, le=model.MAX_MEMORY, description="GB")
]
Tag = Annotated[StrictStr, Field(min_length=1, max_length=50, pattern=fields.VISIBLE)]
Tags = Annotated[list[Tag], Field(max_length=20)]
RepositoryUrl = Annotated[
    StrictStr,
    Field(
        max_length=500,
        pattern=model.REPOSITORY_URL,
        description="`https://…` with no credentials in it, or `builtin:` and a name",
    ),
    AfterValidator(model.require_repository_url),
]


Ref = Annotated[
    StrictStr, Field(max_length=200, pattern=model.REPOSITORY_REF, description="A branch or a tag")
]
Folder = Annotated[
    StrictStr,
    Field(
        max_length=500,
        pattern=model.REPOSITORY_FOLDER,
        description="Folder of the program and its Procfile in the repository",
    ),
]
SecretName = Annotated[
    StrictStr,
    Field(
        max_length=128,
        pattern=model.VARIABLE_NAME,
        description="Name of the secret of the sandbox or its project with the token for a private "
        "repository: the token, or `user:token`. Only for official templates and your own",
    ),
]
EnvironmentName = Annotated[
    StrictStr,
    Field(
        max_length=64,
        pattern=model.ENVIRONMENT_NAME,
        description="The root file system of its sandboxes: the name of one that the operator "
        "imported, or the id of your image",
    ),
]
WantedIsolation = Annotated[
    Literal["bubblewrap", "gvisor"],
    Field(
        description="The weakest isolation of its sandboxes; the server's own, if that is stronger"
    ),
]
DefaultNetwork = Annotated[Network, Field(description="Default network of its sandboxes")]
WarmMachines = Annotated[
    StrictInt,
    Field(ge=0, le=100, description="Machines kept ready for its next sandboxes; admins only"),
    BeforeValidator(fields.whole),
]


def stored_fields(sent: dict[str, Any]) -> dict[str, Any]:
    """The fields of a template: `image` is another name of `environment`."""
    if "image" not in sent:
        return sent
    image = sent.pop("image")
    return sent if image is None and "environment" in sent else {**sent, "environment": image}


class NewTemplateBody(fields.RequestBody):
    model_config = example(
        name="FastAPI service",
        description="A web service with one endpoint",
        category="web",
        language="python",
        repository_url="https://github.com/example/fastapi-service",
        tags=["api"],
    )

    name: fields.Name
    description: fields.Description | None = None
    category: fields.ShortName
    language: fields.ShortName
    min_cpu_required: Cpu = 1.0
    min_memory_required: Memory = 1.0
    is_official: StrictBool = Field(default=False, description="Admins only; it has no owner")
    is_public: StrictBool = False
    repository_url: RepositoryUrl = Field(
        default=model.IMAGE_PROGRAM,
        description="Without it, its sandboxes run their image's program",
    )
    repository_ref: Ref | None = None
    repository_folder: Folder | None = None
    repository_secret: SecretName | None = None
    network: DefaultNetwork | None = None
    environment: EnvironmentName | None = None
    image: EnvironmentName | None = Field(default=None, description="The same as `environment`")
    isolation: WantedIsolation | None = None
    tags: Tags | None = None
    warm_machines: WarmMachines = 0


class TemplateBody(fields.RequestBody):
    """Fields that are left out stay as they are."""

    model_config = example(is_public=True)

    name: fields.Name = fields.unchanged()
    description: fields.Description | None = None
    category: fields.ShortName = fields.unchanged()
    language: fields.ShortName = fields.unchanged()
    min_cpu_required: Cpu = fields.unchanged()
    min_memory_required: Memory = fields.unchanged()
    is_public: StrictBool = fields.unchanged()
    repository_url: RepositoryUrl = fields.unchanged()
    repository_ref: Ref | None = None
    repository_folder: Folder | None = None
    repository_secret: SecretName | None = None
    network: DefaultNetwork | None = None
    environment: EnvironmentName | None = None
    image: EnvironmentName | None = None
    isolation: WantedIsolation | None = None
    tags: Tags | None = None
    warm_machines: WarmMachines = fields.unchanged()


class TemplateAnswer(fields.Answer):
    model_config = example(
        template_id="tpl-0b3d6f9h2k5m8p1rt",
        name="FastAPI service",
        description="A web service with one endpoint",
        category="web",
        language="python",
        min_cpu_required=1.0,
        min_memory_required=1.0,
        is_official=False,
        is_public=True,
        visibility="public",
        is_own=True,
        repository_url="https://github.com/example/fastapi-service",
        repository_ref="v1.2",
        repository_folder=None,
        repository_secret=None,
        network="packages",
        environment=None,
        image=None,
        isolation=None,
        tags=["api"],
        warm_machines=0,
        created_at="2026-10-30T09:00:00Z",
        updated_at="2026-10-30T09:00:00Z",
    )

    template_id: str
    name: str
    description: str | None
    category: str
    language: str
    min_cpu_required: float
    min_memory_required: float
    is_official: bool
    is_public: bool
    visibility: model.Visibility
    is_own: bool = Field(description="Whether it is yours")
    repository_url: str
    repository_ref: str | None
    repository_folder: str | None
    repository_secret: str | None = Field(description="The name of a secret, not its value")
    network: Network | None
    environment: str | None
    image: str | None = Field(description="The same as `environment`")
    isolation: WantedIsolation | None
    tags: list[str] | None
    warm_machines: int
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, template: model.Template, *, account_id: str) -> Self:
        is_own = template.owner_account_id == account_id
        return super().of(template, is_own=is_own, image=template.environment)


class TemplatePage(PageAnswer):
    templates: list[TemplateAnswer]
    next_cursor: str | None
