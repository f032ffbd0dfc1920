"""The Platform's nouns, as `generate_operations.py` writes them."""

# ruff: noqa: A002, E501 - names and lines of the API's document
# fmt: off

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from sandyard_client import models
from sandyard_client.noun import OMIT, AsyncNoun, Noun


class Projects(Noun):
    """Projects of the account."""

    def list(self, *, q: str | None = OMIT, status: Literal["active", "archived"] | None = OMIT, is_default: bool | None = OMIT, sort: Literal["-created_at", "created_at", "name", "-name", "-updated_at"] = OMIT, limit: int | None = None) -> Iterator[models.ProjectAnswer]:
        """List your projects."""
        return self._items(models.ProjectAnswer, "list_projects", {"q": q, "status": status, "is_default": is_default, "sort": sort}, limit)

    def create(self, *, name: str, description: str | None = OMIT, key: str | None = None) -> models.ProjectAnswer:
        """Create a project."""
        return self._call(models.ProjectAnswer, "create_project", {"name": name, "description": description}, key)

    def get(self, project_id: str) -> models.ProjectAnswer:
        """Get a project."""
        return self._call(models.ProjectAnswer, "get_project", {"project_id": project_id})

    def update(self, project_id: str, *, name: str = OMIT, description: str | None = OMIT) -> models.ProjectAnswer:
        """Rename or describe a project."""
        return self._call(models.ProjectAnswer, "update_project", {"project_id": project_id, "name": name, "description": description})

    def archive(self, project_id: str) -> models.ProjectAnswer:
        """Archive a project."""
        return self._call(models.ProjectAnswer, "archive_project", {"project_id": project_id})

    def unarchive(self, project_id: str) -> models.ProjectAnswer:
        """Unarchive a project."""
        return self._call(models.ProjectAnswer, "unarchive_project", {"project_id": project_id})

    def make_default(self, project_id: str) -> models.ProjectAnswer:
        """Make a project the default."""
        return self._call(models.ProjectAnswer, "make_project_default", {"project_id": project_id})

    def delete(self, project_id: str) -> None:
        """Delete a project."""
        self._send("delete_project", {"project_id": project_id})

    def files(self, project_id: str, *, version: int | None = OMIT, path: str | None = OMIT) -> models.ProjectFilesAnswer:
        """List a project's files."""
        return self._call(models.ProjectFilesAnswer, "list_project_files", {"project_id": project_id, "version": version, "path": path})

    def change_files(self, project_id: str, *, files: Sequence[Mapping[str, Any]] = OMIT, deleted: Sequence[str] = OMIT, replace: bool = OMIT, expected_version: int | None = OMIT, message: str = OMIT) -> models.ProjectVersionAnswer:
        """Change a project's files."""
        return self._call(models.ProjectVersionAnswer, "change_project_files", {"project_id": project_id, "files": files, "deleted": deleted, "replace": replace, "expected_version": expected_version, "message": message})

    def link(self, project_id: str, *, minutes: int = OMIT, scopes: Sequence[Literal["view", "status", "sync"]] = OMIT) -> models.AccessTokenAnswer:
        """Create a token for a web page."""
        return self._call(models.AccessTokenAnswer, "create_project_token", {"project_id": project_id, "minutes": minutes, "scopes": scopes})

    def versions(self, project_id: str) -> models.VersionsAnswer:
        """List the versions of a project's files."""
        return self._call(models.VersionsAnswer, "list_project_versions", {"project_id": project_id})

    def compare(self, project_id: str, version: str, *, since: int | None = OMIT) -> models.ComparisonAnswer:
        """Compare two versions of a project's files."""
        return self._call(models.ComparisonAnswer, "compare_project_versions", {"project_id": project_id, "version": version, "since": since})

    def restore(self, project_id: str, version: str, *, message: str = OMIT) -> models.ProjectVersionAnswer:
        """Restore a version of a project's files."""
        return self._call(models.ProjectVersionAnswer, "restore_project_version", {"project_id": project_id, "version": version, "message": message})

    def remove_versions(self, project_id: str, *, keep: int = OMIT) -> None:
        """Remove earlier versions of a project's files."""
        self._send("remove_project_versions", {"project_id": project_id, "keep": keep})

class Previews(Noun):
    """Previews of projects: a project's files, served."""

    def sync(self, project_id: str) -> models.PreviewSyncAnswer:
        """Sync a preview."""
        return self._call(models.PreviewSyncAnswer, "sync_preview", {"project_id": project_id})

    def status(self, project_id: str) -> models.PreviewStatusAnswer:
        """Get a preview's status."""
        return self._call(models.PreviewStatusAnswer, "get_preview_status", {"project_id": project_id})

    def look(self, project_id: str, *, path: str = OMIT, width: int = OMIT, height: int = OMIT) -> models.PreviewLookAnswer:
        """Look at a preview."""
        return self._call(models.PreviewLookAnswer, "look_at_preview", {"project_id": project_id, "path": path, "width": width, "height": height})

    def stop(self, project_id: str) -> models.PreviewStatusAnswer:
        """Stop a preview."""
        return self._call(models.PreviewStatusAnswer, "stop_preview", {"project_id": project_id})

    def history(self, project_id: str, *, limit: int | None = None) -> Iterator[models.EventAnswer]:
        """Get a preview's history."""
        return self._items(models.EventAnswer, "get_preview_history", {"project_id": project_id}, limit)

    def publish(self, project_id: str, *, mode: Literal["files", "build", "run"] = OMIT, version: int | None = OMIT, root: str = OMIT, fallback: str | None = OMIT) -> models.PublicationAnswer:
        """Publish a project."""
        return self._call(models.PublicationAnswer, "publish_project", {"project_id": project_id, "mode": mode, "version": version, "root": root, "fallback": fallback})

    def published(self, project_id: str) -> models.PublicationAnswer:
        """Get what is published of a project."""
        return self._call(models.PublicationAnswer, "get_publication", {"project_id": project_id})

    def unpublish(self, project_id: str) -> None:
        """Unpublish a project."""
        self._send("unpublish_project", {"project_id": project_id})

    def add_domain(self, project_id: str, domain: str) -> models.PublicationAnswer:
        """Publish a project at a domain."""
        return self._call(models.PublicationAnswer, "add_publication_domain", {"project_id": project_id, "domain": domain})

    def remove_domain(self, project_id: str, domain: str) -> None:
        """Remove a domain of a project."""
        self._send("remove_publication_domain", {"project_id": project_id, "domain": domain})

class ProjectVariables(Noun):
    """Variables and secrets of a project, which its sandboxes have too."""

    def list(self, project_id: str, *, limit: int | None = None) -> Iterator[models.VariableAnswer]:
        """List a project's variables."""
        return self._items(models.VariableAnswer, "list_project_variables", {"project_id": project_id}, limit)

    def set(self, project_id: str, name: str, *, value: str, secret: bool = OMIT, binding: Mapping[str, Any] | None = OMIT) -> models.VariableAnswer:
        """Set a variable of a project."""
        return self._call(models.VariableAnswer, "set_project_variable", {"project_id": project_id, "name": name, "value": value, "secret": secret, "binding": binding})

    def remove(self, project_id: str, name: str) -> None:
        """Remove a variable of a project."""
        self._send("remove_project_variable", {"project_id": project_id, "name": name})

class Templates(Noun):
    """Templates that sandboxes are created from."""

    def list(self, *, q: str | None = OMIT, category: str | None = OMIT, language: str | None = OMIT, tag: str | None = OMIT, visibility: Literal["official", "public", "private"] | None = OMIT, sort: Literal["-created_at", "created_at", "name", "-name"] = OMIT, limit: int | None = None) -> Iterator[models.TemplateAnswer]:
        """List templates."""
        return self._items(models.TemplateAnswer, "list_templates", {"q": q, "category": category, "language": language, "tag": tag, "visibility": visibility, "sort": sort}, limit)

    def create(self, *, name: str, category: str, language: str, description: str | None = OMIT, min_cpu_required: float = OMIT, min_memory_required: float = OMIT, is_official: bool = OMIT, is_public: bool = OMIT, repository_url: str = OMIT, repository_ref: str | None = OMIT, repository_folder: str | None = OMIT, repository_secret: str | None = OMIT, network: Literal["none", "packages", "internet"] | None = OMIT, environment: str | None = OMIT, image: str | None = OMIT, isolation: Literal["bubblewrap", "gvisor"] | None = OMIT, tags: Sequence[str] | None = OMIT, warm_machines: int = OMIT, key: str | None = None) -> models.TemplateAnswer:
        """Create a template."""
        return self._call(models.TemplateAnswer, "create_template", {"name": name, "description": description, "category": category, "language": language, "min_cpu_required": min_cpu_required, "min_memory_required": min_memory_required, "is_official": is_official, "is_public": is_public, "repository_url": repository_url, "repository_ref": repository_ref, "repository_folder": repository_folder, "repository_secret": repository_secret, "network": network, "environment": environment, "image": image, "isolation": isolation, "tags": tags, "warm_machines": warm_machines}, key)

    def get(self, template_id: str) -> models.TemplateAnswer:
        """Get a template."""
        return self._call(models.TemplateAnswer, "get_template", {"template_id": template_id})

    def update(self, template_id: str, *, name: str = OMIT, description: str | None = OMIT, category: str = OMIT, language: str = OMIT, min_cpu_required: float = OMIT, min_memory_required: float = OMIT, is_public: bool = OMIT, repository_url: str = OMIT, repository_ref: str | None = OMIT, repository_folder: str | None = OMIT, repository_secret: str | None = OMIT, network: Literal["none", "packages", "internet"] | None = OMIT, environment: str | None = OMIT, image: str | None = OMIT, isolation: Literal["bubblewrap", "gvisor"] | None = OMIT, tags: Sequence[str] | None = OMIT, warm_machines: int = OMIT) -> models.TemplateAnswer:
        """Change a template."""
        return self._call(models.TemplateAnswer, "update_template", {"template_id": template_id, "name": name, "description": description, "category": category, "language": language, "min_cpu_required": min_cpu_required, "min_memory_required": min_memory_required, "is_public": is_public, "repository_url": repository_url, "repository_ref": repository_ref, "repository_folder": repository_folder, "repository_secret": repository_secret, "network": network, "environment": environment, "image": image, "isolation": isolation, "tags": tags, "warm_machines": warm_machines})

    def delete(self, template_id: str) -> None:
        """Delete a template."""
        self._send("delete_template", {"template_id": template_id})

class Images(Noun):
    """Images of root file systems."""

    def list(self, *, q: str | None = OMIT, status: Literal["pulling", "ready", "failed"] | None = OMIT, limit: int | None = None) -> Iterator[models.ImageAnswer]:
        """List your images."""
        return self._items(models.ImageAnswer, "list_images", {"q": q, "status": status}, limit)

    def pull(self, *, reference: str, project_id: str | None = OMIT, secret: str | None = OMIT, key: str | None = None) -> models.ImageAnswer:
        """Pull an image."""
        return self._call(models.ImageAnswer, "pull_image", {"reference": reference, "project_id": project_id, "secret": secret}, key)

    def get(self, image_id: str) -> models.ImageAnswer:
        """Get an image."""
        return self._call(models.ImageAnswer, "get_image", {"image_id": image_id})

    def delete(self, image_id: str) -> None:
        """Delete an image."""
        self._send("delete_image", {"image_id": image_id})

class Volumes(Noun):
    """Volumes, which outlive the sandboxes that mount them."""

    def list(self, *, project_id: str | None = OMIT, name: str | None = OMIT, limit: int | None = None) -> Iterator[models.VolumeAnswer]:
        """List your volumes."""
        return self._items(models.VolumeAnswer, "list_volumes", {"project_id": project_id, "name": name}, limit)

    def create(self, *, name: str, size_gb: float = OMIT, project_id: str | None = OMIT, copy_of: str | None = OMIT, read_only: bool = OMIT, key: str | None = None) -> models.VolumeAnswer:
        """Create a volume."""
        return self._call(models.VolumeAnswer, "create_volume", {"name": name, "size_gb": size_gb, "project_id": project_id, "copy_of": copy_of, "read_only": read_only}, key)

    def get(self, volume_id: str) -> models.VolumeAnswer:
        """Get a volume."""
        return self._call(models.VolumeAnswer, "get_volume", {"volume_id": volume_id})

    def resize(self, volume_id: str, *, size_gb: float) -> models.VolumeAnswer:
        """Resize a volume."""
        return self._call(models.VolumeAnswer, "resize_volume", {"volume_id": volume_id, "size_gb": size_gb})

    def delete(self, volume_id: str) -> None:
        """Delete a volume."""
        self._send("delete_volume", {"volume_id": volume_id})

class Keys(Noun):
    """API keys of the account."""

    def list(self, *, q: str | None = OMIT, is_active: bool | None = OMIT, sort: Literal["-created_at", "created_at", "name", "-name"] = OMIT, limit: int | None = None) -> Iterator[models.ApiKeyAnswer]:
        """List your API keys."""
        return self._items(models.ApiKeyAnswer, "list_api_keys", {"q": q, "is_active": is_active, "sort": sort}, limit)

    def create(self, *, name: str, description: str | None = OMIT, scope: Literal["read", "run", "admin"] = OMIT, expires_at: datetime | None = OMIT, format: Literal["sandyard", "e2b"] = OMIT, key: str | None = None) -> models.NewApiKeyAnswer:
        """Create an API key."""
        return self._call(models.NewApiKeyAnswer, "create_api_key", {"name": name, "description": description, "scope": scope, "expires_at": expires_at, "format": format}, key)

    def get(self, key_id: str) -> models.ApiKeyAnswer:
        """Get an API key."""
        return self._call(models.ApiKeyAnswer, "get_api_key", {"key_id": key_id})

    def update(self, key_id: str, *, name: str = OMIT, description: str | None = OMIT) -> models.ApiKeyAnswer:
        """Rename or describe an API key."""
        return self._call(models.ApiKeyAnswer, "update_api_key", {"key_id": key_id, "name": name, "description": description})

    def activate(self, key_id: str) -> models.ApiKeyAnswer:
        """Activate an API key."""
        return self._call(models.ApiKeyAnswer, "activate_api_key", {"key_id": key_id})

    def deactivate(self, key_id: str) -> models.ApiKeyAnswer:
        """Deactivate an API key."""
        return self._call(models.ApiKeyAnswer, "deactivate_api_key", {"key_id": key_id})

    def delete(self, key_id: str) -> None:
        """Delete an API key."""
        self._send("delete_api_key", {"key_id": key_id})

class SshKeys(Noun):
    """Keys that log in to the account's sandboxes by SSH."""

    def list(self, *, limit: int | None = None) -> Iterator[models.SshKeyAnswer]:
        """List your SSH keys."""
        return self._items(models.SshKeyAnswer, "list_ssh_keys", {}, limit)

    def add(self, *, name: str, public_key: str) -> models.SshKeyAnswer:
        """Add an SSH key."""
        return self._call(models.SshKeyAnswer, "add_ssh_key", {"name": name, "public_key": public_key})

    def remove(self, ssh_key_id: str) -> None:
        """Remove an SSH key."""
        self._send("remove_ssh_key", {"ssh_key_id": ssh_key_id})

    def address(self) -> models.SshAddressAnswer:
        """Get the address of the SSH server."""
        return self._call(models.SshAddressAnswer, "get_ssh_address", {})

class Sandboxes(Noun):
    """Sandboxes of the account, by id."""

    def list(self, *, status: Literal[
        "created",
        "starting",
        "running",
        "stopped",
        "timeout",
        "recycled",
    ] | None = OMIT, project_id: str | None = OMIT, template_id: str | None = OMIT, q: str | None = OMIT, sort: Literal[
        "created_at",
        "-created_at",
        "name",
        "-name",
        "updated_at",
        "-updated_at",
    ] = OMIT, limit: int | None = None) -> Iterator[models.SandboxAnswer]:
        """List sandboxes."""
        return self._items(models.SandboxAnswer, "list_sandboxes", {"status": status, "project_id": project_id, "template_id": template_id, "q": q, "sort": sort}, limit)

    def create(self, *, name: str, template_id: str, project_id: str | None = OMIT, description: str | None = OMIT, cpu_spec: float = OMIT, memory_spec: float = OMIT, max_running_seconds: int = OMIT, metadata: Mapping[str, str] = OMIT, recycle_on_timeout: bool = OMIT, keeps_memory: bool = OMIT, public_ports: Sequence[int] = OMIT, program_policy: Literal["on_failure", "never"] = OMIT, network: Literal["none", "packages", "internet"] | None = OMIT, idle_stop_minutes: int | None = OMIT, volumes: Sequence[Mapping[str, Any]] = OMIT, key: str | None = None) -> models.SandboxAnswer:
        """Create a sandbox."""
        return self._call(models.SandboxAnswer, "create_sandbox", {"name": name, "template_id": template_id, "project_id": project_id, "description": description, "cpu_spec": cpu_spec, "memory_spec": memory_spec, "max_running_seconds": max_running_seconds, "metadata": metadata, "recycle_on_timeout": recycle_on_timeout, "keeps_memory": keeps_memory, "public_ports": public_ports, "program_policy": program_policy, "network": network, "idle_stop_minutes": idle_stop_minutes, "volumes": volumes}, key)

    def get(self, sandbox_id: str) -> models.SandboxAnswer:
        """Get a sandbox."""
        return self._call(models.SandboxAnswer, "get_sandbox", {"sandbox_id": sandbox_id})

    def update(self, sandbox_id: str, *, name: str = OMIT, description: str | None = OMIT, project_id: str | None = OMIT, cpu_spec: float = OMIT, memory_spec: float = OMIT, max_running_seconds: int = OMIT, is_public: bool = OMIT, public_ports: Sequence[int] = OMIT, wake_on_request: bool = OMIT, program_policy: Literal["on_failure", "never"] = OMIT, network: Literal["none", "packages", "internet"] = OMIT, idle_stop_minutes: int | None = OMIT) -> models.SandboxAnswer:
        """Change a sandbox."""
        return self._call(models.SandboxAnswer, "update_sandbox", {"sandbox_id": sandbox_id, "name": name, "description": description, "project_id": project_id, "cpu_spec": cpu_spec, "memory_spec": memory_spec, "max_running_seconds": max_running_seconds, "is_public": is_public, "public_ports": public_ports, "wake_on_request": wake_on_request, "program_policy": program_policy, "network": network, "idle_stop_minutes": idle_stop_minutes})

    def start(self, sandbox_id: str, *, program: bool = OMIT, memory: bool = OMIT) -> models.SandboxAnswer:
        """Start a sandbox."""
        return self._call(models.SandboxAnswer, "start_sandbox", {"sandbox_id": sandbox_id, "program": program, "memory": memory})

    def stop(self, sandbox_id: str, *, memory: bool | None = OMIT) -> models.SandboxAnswer:
        """Stop a sandbox."""
        return self._call(models.SandboxAnswer, "stop_sandbox", {"sandbox_id": sandbox_id, "memory": memory})

    def extend(self, sandbox_id: str, *, seconds: int) -> models.SandboxAnswer:
        """Extend a sandbox's run."""
        return self._call(models.SandboxAnswer, "extend_sandbox", {"sandbox_id": sandbox_id, "seconds": seconds})

    def recycle(self, sandbox_id: str) -> models.SandboxAnswer:
        """Recycle a sandbox."""
        return self._call(models.SandboxAnswer, "recycle_sandbox", {"sandbox_id": sandbox_id})

    def link(self, sandbox_id: str, *, minutes: int = OMIT, port: int | None = OMIT) -> models.AccessTokenAnswer:
        """Create a link to a sandbox."""
        return self._call(models.AccessTokenAnswer, "create_sandbox_token", {"sandbox_id": sandbox_id, "minutes": minutes, "port": port})

    def history(self, sandbox_id: str, *, limit: int | None = None) -> Iterator[models.EventAnswer]:
        """Get a sandbox's history."""
        return self._items(models.EventAnswer, "get_sandbox_history", {"sandbox_id": sandbox_id}, limit)

    def start_program(self, sandbox_id: str) -> models.SandboxAnswer:
        """Start a sandbox's program."""
        return self._call(models.SandboxAnswer, "start_program", {"sandbox_id": sandbox_id})

    def stop_program(self, sandbox_id: str) -> models.SandboxAnswer:
        """Stop a sandbox's program."""
        return self._call(models.SandboxAnswer, "stop_program", {"sandbox_id": sandbox_id})

    def restart_program(self, sandbox_id: str) -> models.SandboxAnswer:
        """Restart a sandbox's program."""
        return self._call(models.SandboxAnswer, "restart_program", {"sandbox_id": sandbox_id})

class Commands(Noun):
    """Commands of one sandbox, which run in the background."""

    def list(self, *, limit: int | None = None) -> Iterator[models.CommandAnswer]:
        """List commands."""
        return self._items(models.CommandAnswer, "list_commands", {}, limit)

    def get(self, command_id: str) -> models.CommandAnswer:
        """Get a command."""
        return self._call(models.CommandAnswer, "get_command", {"command_id": command_id})

    def kill(self, command_id: str) -> models.CommandAnswer:
        """Kill a command."""
        return self._call(models.CommandAnswer, "kill_command", {"command_id": command_id})

    def signal(self, command_id: str, *, signal: Literal[
        "SIGHUP",
        "SIGINT",
        "SIGQUIT",
        "SIGKILL",
        "SIGUSR1",
        "SIGUSR2",
        "SIGTERM",
        "SIGCONT",
        "SIGSTOP",
        "SIGWINCH",
    ] = OMIT) -> models.CommandAnswer:
        """Send a signal to a command."""
        return self._call(models.CommandAnswer, "signal_command", {"command_id": command_id, "signal": signal})

    def write(self, command_id: str, *, data: str = OMIT, encoding: Literal["text", "base64"] = OMIT, close: bool = OMIT) -> None:
        """Write to a command's input."""
        self._send("write_command_input", {"command_id": command_id, "data": data, "encoding": encoding, "close": close})

class Variables(Noun):
    """Variables and secrets of one sandbox; its programs have them from their next start on."""

    def list(self, *, limit: int | None = None) -> Iterator[models.VariableAnswer]:
        """List a sandbox's variables."""
        return self._items(models.VariableAnswer, "list_sandbox_variables", {}, limit)

    def set(self, name: str, *, value: str, secret: bool = OMIT, binding: Mapping[str, Any] | None = OMIT) -> models.VariableAnswer:
        """Set a variable of a sandbox."""
        return self._call(models.VariableAnswer, "set_sandbox_variable", {"name": name, "value": value, "secret": secret, "binding": binding})

    def remove(self, name: str) -> None:
        """Remove a variable of a sandbox."""
        self._send("remove_sandbox_variable", {"name": name})

class Ports(Noun):
    """Ports that programs of one sandbox listen on."""

    def list(self, *, limit: int | None = None) -> Iterator[models.PortAnswer]:
        """List the ports of a sandbox."""
        return self._items(models.PortAnswer, "list_ports", {}, limit)

class Usage(Noun):
    """What the account used, and what it costs."""

    def runs(self, *, sandbox_id: str | None = OMIT, project_id: str | None = OMIT, service_type: Literal["sandbox_runtime", "storage", "charge", "credit"] | None = OMIT, is_open: bool | None = OMIT, from_: datetime | None = OMIT, to: datetime | None = OMIT, limit: int | None = None) -> Iterator[models.UsageAnswer]:
        """List usage."""
        return self._items(models.UsageAnswer, "list_usage", {"sandbox_id": sandbox_id, "project_id": project_id, "service_type": service_type, "is_open": is_open, "from": from_, "to": to}, limit)

    def bills(self, *, project_id: str | None = OMIT, sandbox_id: str | None = OMIT, service_type: Literal["sandbox_runtime", "storage", "charge", "credit"] | None = OMIT, from_: str | None = OMIT, to: str | None = OMIT, limit: int | None = None) -> Iterator[models.BillAnswer]:
        """List bills."""
        return self._items(models.BillAnswer, "list_bills", {"project_id": project_id, "sandbox_id": sandbox_id, "service_type": service_type, "from": from_, "to": to}, limit)

    def sums(self, *, by: Literal["day", "project", "sandbox", "service_type"] = OMIT, project_id: str | None = OMIT, sandbox_id: str | None = OMIT, service_type: Literal["sandbox_runtime", "storage", "charge", "credit"] | None = OMIT, from_: str | None = OMIT, to: str | None = OMIT) -> models.BillingSumsAnswer:
        """Sum bills."""
        return self._call(models.BillingSumsAnswer, "sum_bills", {"by": by, "project_id": project_id, "sandbox_id": sandbox_id, "service_type": service_type, "from": from_, "to": to})

    def month(self, *, by: Literal["day", "project", "sandbox", "service_type"] = OMIT, sandbox_id: str | None = OMIT) -> models.MonthToDateAnswer:
        """Get this month's cost so far."""
        return self._call(models.MonthToDateAnswer, "get_month_to_date", {"by": by, "sandbox_id": sandbox_id})

    def quotas(self) -> models.QuotasAnswer:
        """Get your quotas and their use."""
        return self._call(models.QuotasAnswer, "get_quota", {})

class Platform(Noun):
    """Its nouns, unbound."""

    @property
    def projects(self) -> Projects:
        return Projects(self._client)

    @property
    def previews(self) -> Previews:
        return Previews(self._client)

    @property
    def project_variables(self) -> ProjectVariables:
        return ProjectVariables(self._client)

    @property
    def templates(self) -> Templates:
        return Templates(self._client)

    @property
    def images(self) -> Images:
        return Images(self._client)

    @property
    def volumes(self) -> Volumes:
        return Volumes(self._client)

    @property
    def keys(self) -> Keys:
        return Keys(self._client)

    @property
    def ssh_keys(self) -> SshKeys:
        return SshKeys(self._client)

    @property
    def sandboxes(self) -> Sandboxes:
        return Sandboxes(self._client)

    @property
    def usage(self) -> Usage:
        return Usage(self._client)

class AsyncProjects(AsyncNoun):
    """Projects of the account."""

    def list(self, *, q: str | None = OMIT, status: Literal["active", "archived"] | None = OMIT, is_default: bool | None = OMIT, sort: Literal["-created_at", "created_at", "name", "-name", "-updated_at"] = OMIT, limit: int | None = None) -> AsyncIterator[models.ProjectAnswer]:
        """List your projects."""
        return self._items(models.ProjectAnswer, "list_projects", {"q": q, "status": status, "is_default": is_default, "sort": sort}, limit)

    async def create(self, *, name: str, description: str | None = OMIT, key: str | None = None) -> models.ProjectAnswer:
        """Create a project."""
        return await self._call(models.ProjectAnswer, "create_project", {"name": name, "description": description}, key)

    async def get(self, project_id: str) -> models.ProjectAnswer:
        """Get a project."""
        return await self._call(models.ProjectAnswer, "get_project", {"project_id": project_id})

    async def update(self, project_id: str, *, name: str = OMIT, description: str | None = OMIT) -> models.ProjectAnswer:
        """Rename or describe a project."""
        return await self._call(models.ProjectAnswer, "update_project", {"project_id": project_id, "name": name, "description": description})

    async def archive(self, project_id: str) -> models.ProjectAnswer:
        """Archive a project."""
        return await self._call(models.ProjectAnswer, "archive_project", {"project_id": project_id})

    async def unarchive(self, project_id: str) -> models.ProjectAnswer:
        """Unarchive a project."""
        return await self._call(models.ProjectAnswer, "unarchive_project", {"project_id": project_id})

    async def make_default(self, project_id: str) -> models.ProjectAnswer:
        """Make a project the default."""
        return await self._call(models.ProjectAnswer, "make_project_default", {"project_id": project_id})

    async def delete(self, project_id: str) -> None:
        """Delete a project."""
        await self._send("delete_project", {"project_id": project_id})

    async def files(self, project_id: str, *, version: int | None = OMIT, path: str | None = OMIT) -> models.ProjectFilesAnswer:
        """List a project's files."""
        return await self._call(models.ProjectFilesAnswer, "list_project_files", {"project_id": project_id, "version": version, "path": path})

    async def change_files(self, project_id: str, *, files: Sequence[Mapping[str, Any]] = OMIT, deleted: Sequence[str] = OMIT, replace: bool = OMIT, expected_version: int | None = OMIT, message: str = OMIT) -> models.ProjectVersionAnswer:
        """Change a project's files."""
        return await self._call(models.ProjectVersionAnswer, "change_project_files", {"project_id": project_id, "files": files, "deleted": deleted, "replace": replace, "expected_version": expected_version, "message": message})

    async def link(self, project_id: str, *, minutes: int = OMIT, scopes: Sequence[Literal["view", "status", "sync"]] = OMIT) -> models.AccessTokenAnswer:
        """Create a token for a web page."""
        return await self._call(models.AccessTokenAnswer, "create_project_token", {"project_id": project_id, "minutes": minutes, "scopes": scopes})

    async def versions(self, project_id: str) -> models.VersionsAnswer:
        """List the versions of a project's files."""
        return await self._call(models.VersionsAnswer, "list_project_versions", {"project_id": project_id})

    async def compare(self, project_id: str, version: str, *, since: int | None = OMIT) -> models.ComparisonAnswer:
        """Compare two versions of a project's files."""
        return await self._call(models.ComparisonAnswer, "compare_project_versions", {"project_id": project_id, "version": version, "since": since})

    async def restore(self, project_id: str, version: str, *, message: str = OMIT) -> models.ProjectVersionAnswer:
        """Restore a version of a project's files."""
        return await self._call(models.ProjectVersionAnswer, "restore_project_version", {"project_id": project_id, "version": version, "message": message})

    async def remove_versions(self, project_id: str, *, keep: int = OMIT) -> None:
        """Remove earlier versions of a project's files."""
        await self._send("remove_project_versions", {"project_id": project_id, "keep": keep})

class AsyncPreviews(AsyncNoun):
    """Previews of projects: a project's files, served."""

    async def sync(self, project_id: str) -> models.PreviewSyncAnswer:
        """Sync a preview."""
        return await self._call(models.PreviewSyncAnswer, "sync_preview", {"project_id": project_id})

    async def status(self, project_id: str) -> models.PreviewStatusAnswer:
        """Get a preview's status."""
        return await self._call(models.PreviewStatusAnswer, "get_preview_status", {"project_id": project_id})

    async def look(self, project_id: str, *, path: str = OMIT, width: int = OMIT, height: int = OMIT) -> models.PreviewLookAnswer:
        """Look at a preview."""
        return await self._call(models.PreviewLookAnswer, "look_at_preview", {"project_id": project_id, "path": path, "width": width, "height": height})

    async def stop(self, project_id: str) -> models.PreviewStatusAnswer:
        """Stop a preview."""
        return await self._call(models.PreviewStatusAnswer, "stop_preview", {"project_id": project_id})

    def history(self, project_id: str, *, limit: int | None = None) -> AsyncIterator[models.EventAnswer]:
        """Get a preview's history."""
        return self._items(models.EventAnswer, "get_preview_history", {"project_id": project_id}, limit)

    async def publish(self, project_id: str, *, mode: Literal["files", "build", "run"] = OMIT, version: int | None = OMIT, root: str = OMIT, fallback: str | None = OMIT) -> models.PublicationAnswer:
        """Publish a project."""
        return await self._call(models.PublicationAnswer, "publish_project", {"project_id": project_id, "mode": mode, "version": version, "root": root, "fallback": fallback})

    async def published(self, project_id: str) -> models.PublicationAnswer:
        """Get what is published of a project."""
        return await self._call(models.PublicationAnswer, "get_publication", {"project_id": project_id})

    async def unpublish(self, project_id: str) -> None:
        """Unpublish a project."""
        await self._send("unpublish_project", {"project_id": project_id})

    async def add_domain(self, project_id: str, domain: str) -> models.PublicationAnswer:
        """Publish a project at a domain."""
        return await self._call(models.PublicationAnswer, "add_publication_domain", {"project_id": project_id, "domain": domain})

    async def remove_domain(self, project_id: str, domain: str) -> None:
        """Remove a domain of a project."""
        await self._send("remove_publication_domain", {"project_id": project_id, "domain": domain})

class AsyncProjectVariables(AsyncNoun):
    """Variables and secrets of a project, which its sandboxes have too."""

    def list(self, project_id: str, *, limit: int | None = None) -> AsyncIterator[models.VariableAnswer]:
        """List a project's variables."""
        return self._items(models.VariableAnswer, "list_project_variables", {"project_id": project_id}, limit)

    async def set(self, project_id: str, name: str, *, value: str, secret: bool = OMIT, binding: Mapping[str, Any] | None = OMIT) -> models.VariableAnswer:
        """Set a variable of a project."""
        return await self._call(models.VariableAnswer, "set_project_variable", {"project_id": project_id, "name": name, "value": value, "secret": secret, "binding": binding})

    async def remove(self, project_id: str, name: str) -> None:
        """Remove a variable of a project."""
        await self._send("remove_project_variable", {"project_id": project_id, "name": name})

class AsyncTemplates(AsyncNoun):
    """Templates that sandboxes are created from."""

    def list(self, *, q: str | None = OMIT, category: str | None = OMIT, language: str | None = OMIT, tag: str | None = OMIT, visibility: Literal["official", "public", "private"] | None = OMIT, sort: Literal["-created_at", "created_at", "name", "-name"] = OMIT, limit: int | None = None) -> AsyncIterator[models.TemplateAnswer]:
        """List templates."""
        return self._items(models.TemplateAnswer, "list_templates", {"q": q, "category": category, "language": language, "tag": tag, "visibility": visibility, "sort": sort}, limit)

    async def create(self, *, name: str, category: str, language: str, description: str | None = OMIT, min_cpu_required: float = OMIT, min_memory_required: float = OMIT, is_official: bool = OMIT, is_public: bool = OMIT, repository_url: str = OMIT, repository_ref: str | None = OMIT, repository_folder: str | None = OMIT, repository_secret: str | None = OMIT, network: Literal["none", "packages", "internet"] | None = OMIT, environment: str | None = OMIT, image: str | None = OMIT, isolation: Literal["bubblewrap", "gvisor"] | None = OMIT, tags: Sequence[str] | None = OMIT, warm_machines: int = OMIT, key: str | None = None) -> models.TemplateAnswer:
        """Create a template."""
        return await self._call(models.TemplateAnswer, "create_template", {"name": name, "description": description, "category": category, "language": language, "min_cpu_required": min_cpu_required, "min_memory_required": min_memory_required, "is_official": is_official, "is_public": is_public, "repository_url": repository_url, "repository_ref": repository_ref, "repository_folder": repository_folder, "repository_secret": repository_secret, "network": network, "environment": environment, "image": image, "isolation": isolation, "tags": tags, "warm_machines": warm_machines}, key)

    async def get(self, template_id: str) -> models.TemplateAnswer:
        """Get a template."""
        return await self._call(models.TemplateAnswer, "get_template", {"template_id": template_id})

    async def update(self, template_id: str, *, name: str = OMIT, description: str | None = OMIT, category: str = OMIT, language: str = OMIT, min_cpu_required: float = OMIT, min_memory_required: float = OMIT, is_public: bool = OMIT, repository_url: str = OMIT, repository_ref: str | None = OMIT, repository_folder: str | None = OMIT, repository_secret: str | None = OMIT, network: Literal["none", "packages", "internet"] | None = OMIT, environment: str | None = OMIT, image: str | None = OMIT, isolation: Literal["bubblewrap", "gvisor"] | None = OMIT, tags: Sequence[str] | None = OMIT, warm_machines: int = OMIT) -> models.TemplateAnswer:
        """Change a template."""
        return await self._call(models.TemplateAnswer, "update_template", {"template_id": template_id, "name": name, "description": description, "category": category, "language": language, "min_cpu_required": min_cpu_required, "min_memory_required": min_memory_required, "is_public": is_public, "repository_url": repository_url, "repository_ref": repository_ref, "repository_folder": repository_folder, "repository_secret": repository_secret, "network": network, "environment": environment, "image": image, "isolation": isolation, "tags": tags, "warm_machines": warm_machines})

    async def delete(self, template_id: str) -> None:
        """Delete a template."""
        await self._send("delete_template", {"template_id": template_id})

class AsyncImages(AsyncNoun):
    """Images of root file systems."""

    def list(self, *, q: str | None = OMIT, status: Literal["pulling", "ready", "failed"] | None = OMIT, limit: int | None = None) -> AsyncIterator[models.ImageAnswer]:
        """List your images."""
        return self._items(models.ImageAnswer, "list_images", {"q": q, "status": status}, limit)

    async def pull(self, *, reference: str, project_id: str | None = OMIT, secret: str | None = OMIT, key: str | None = None) -> models.ImageAnswer:
        """Pull an image."""
        return await self._call(models.ImageAnswer, "pull_image", {"reference": reference, "project_id": project_id, "secret": secret}, key)

    async def get(self, image_id: str) -> models.ImageAnswer:
        """Get an image."""
        return await self._call(models.ImageAnswer, "get_image", {"image_id": image_id})

    async def delete(self, image_id: str) -> None:
        """Delete an image."""
        await self._send("delete_image", {"image_id": image_id})

class AsyncVolumes(AsyncNoun):
    """Volumes, which outlive the sandboxes that mount them."""

    def list(self, *, project_id: str | None = OMIT, name: str | None = OMIT, limit: int | None = None) -> AsyncIterator[models.VolumeAnswer]:
        """List your volumes."""
        return self._items(models.VolumeAnswer, "list_volumes", {"project_id": project_id, "name": name}, limit)

    async def create(self, *, name: str, size_gb: float = OMIT, project_id: str | None = OMIT, copy_of: str | None = OMIT, read_only: bool = OMIT, key: str | None = None) -> models.VolumeAnswer:
        """Create a volume."""
        return await self._call(models.VolumeAnswer, "create_volume", {"name": name, "size_gb": size_gb, "project_id": project_id, "copy_of": copy_of, "read_only": read_only}, key)

    async def get(self, volume_id: str) -> models.VolumeAnswer:
        """Get a volume."""
        return await self._call(models.VolumeAnswer, "get_volume", {"volume_id": volume_id})

    async def resize(self, volume_id: str, *, size_gb: float) -> models.VolumeAnswer:
        """Resize a volume."""
        return await self._call(models.VolumeAnswer, "resize_volume", {"volume_id": volume_id, "size_gb": size_gb})

    async def delete(self, volume_id: str) -> None:
        """Delete a volume."""
        await self._send("delete_volume", {"volume_id": volume_id})

class AsyncKeys(AsyncNoun):
    """API keys of the account."""

    def list(self, *, q: str | None = OMIT, is_active: bool | None = OMIT, sort: Literal["-created_at", "created_at", "name", "-name"] = OMIT, limit: int | None = None) -> AsyncIterator[models.ApiKeyAnswer]:
        """List your API keys."""
        return self._items(models.ApiKeyAnswer, "list_api_keys", {"q": q, "is_active": is_active, "sort": sort}, limit)

    async def create(self, *, name: str, description: str | None = OMIT, scope: Literal["read", "run", "admin"] = OMIT, expires_at: datetime | None = OMIT, format: Literal["sandyard", "e2b"] = OMIT, key: str | None = None) -> models.NewApiKeyAnswer:
        """Create an API key."""
        return await self._call(models.NewApiKeyAnswer, "create_api_key", {"name": name, "description": description, "scope": scope, "expires_at": expires_at, "format": format}, key)

    async def get(self, key_id: str) -> models.ApiKeyAnswer:
        """Get an API key."""
        return await self._call(models.ApiKeyAnswer, "get_api_key", {"key_id": key_id})

    async def update(self, key_id: str, *, name: str = OMIT, description: str | None = OMIT) -> models.ApiKeyAnswer:
        """Rename or describe an API key."""
        return await self._call(models.ApiKeyAnswer, "update_api_key", {"key_id": key_id, "name": name, "description": description})

    async def activate(self, key_id: str) -> models.ApiKeyAnswer:
        """Activate an API key."""
        return await self._call(models.ApiKeyAnswer, "activate_api_key", {"key_id": key_id})

    async def deactivate(self, key_id: str) -> models.ApiKeyAnswer:
        """Deactivate an API key."""
        return await self._call(models.ApiKeyAnswer, "deactivate_api_key", {"key_id": key_id})

    async def delete(self, key_id: str) -> None:
        """Delete an API key."""
        await self._send("delete_api_key", {"key_id": key_id})

class AsyncSshKeys(AsyncNoun):
    """Keys that log in to the account's sandboxes by SSH."""

    def list(self, *, limit: int | None = None) -> AsyncIterator[models.SshKeyAnswer]:
        """List your SSH keys."""
        return self._items(models.SshKeyAnswer, "list_ssh_keys", {}, limit)

    async def add(self, *, name: str, public_key: str) -> models.SshKeyAnswer:
        """Add an SSH key."""
        return await self._call(models.SshKeyAnswer, "add_ssh_key", {"name": name, "public_key": public_key})

    async def remove(self, ssh_key_id: str) -> None:
        """Remove an SSH key."""
        await self._send("remove_ssh_key", {"ssh_key_id": ssh_key_id})

    async def address(self) -> models.SshAddressAnswer:
        """Get the address of the SSH server."""
        return await self._call(models.SshAddressAnswer, "get_ssh_address", {})

class AsyncSandboxes(AsyncNoun):
    """Sandboxes of the account, by id."""

    def list(self, *, status: Literal[
        "created",
        "starting",
        "running",
        "stopped",
        "timeout",
        "recycled",
    ] | None = OMIT, project_id: str | None = OMIT, template_id: str | None = OMIT, q: str | None = OMIT, sort: Literal[
        "created_at",
        "-created_at",
        "name",
        "-name",
        "updated_at",
        "-updated_at",
    ] = OMIT, limit: int | None = None) -> AsyncIterator[models.SandboxAnswer]:
        """List sandboxes."""
        return self._items(models.SandboxAnswer, "list_sandboxes", {"status": status, "project_id": project_id, "template_id": template_id, "q": q, "sort": sort}, limit)

    async def create(self, *, name: str, template_id: str, project_id: str | None = OMIT, description: str | None = OMIT, cpu_spec: float = OMIT, memory_spec: float = OMIT, max_running_seconds: int = OMIT, metadata: Mapping[str, str] = OMIT, recycle_on_timeout: bool = OMIT, keeps_memory: bool = OMIT, public_ports: Sequence[int] = OMIT, program_policy: Literal["on_failure", "never"] = OMIT, network: Literal["none", "packages", "internet"] | None = OMIT, idle_stop_minutes: int | None = OMIT, volumes: Sequence[Mapping[str, Any]] = OMIT, key: str | None = None) -> models.SandboxAnswer:
        """Create a sandbox."""
        return await self._call(models.SandboxAnswer, "create_sandbox", {"name": name, "template_id": template_id, "project_id": project_id, "description": description, "cpu_spec": cpu_spec, "memory_spec": memory_spec, "max_running_seconds": max_running_seconds, "metadata": metadata, "recycle_on_timeout": recycle_on_timeout, "keeps_memory": keeps_memory, "public_ports": public_ports, "program_policy": program_policy, "network": network, "idle_stop_minutes": idle_stop_minutes, "volumes": volumes}, key)

    async def get(self, sandbox_id: str) -> models.SandboxAnswer:
        """Get a sandbox."""
        return await self._call(models.SandboxAnswer, "get_sandbox", {"sandbox_id": sandbox_id})

    async def update(self, sandbox_id: str, *, name: str = OMIT, description: str | None = OMIT, project_id: str | None = OMIT, cpu_spec: float = OMIT, memory_spec: float = OMIT, max_running_seconds: int = OMIT, is_public: bool = OMIT, public_ports: Sequence[int] = OMIT, wake_on_request: bool = OMIT, program_policy: Literal["on_failure", "never"] = OMIT, network: Literal["none", "packages", "internet"] = OMIT, idle_stop_minutes: int | None = OMIT) -> models.SandboxAnswer:
        """Change a sandbox."""
        return await self._call(models.SandboxAnswer, "update_sandbox", {"sandbox_id": sandbox_id, "name": name, "description": description, "project_id": project_id, "cpu_spec": cpu_spec, "memory_spec": memory_spec, "max_running_seconds": max_running_seconds, "is_public": is_public, "public_ports": public_ports, "wake_on_request": wake_on_request, "program_policy": program_policy, "network": network, "idle_stop_minutes": idle_stop_minutes})

    async def start(self, sandbox_id: str, *, program: bool = OMIT, memory: bool = OMIT) -> models.SandboxAnswer:
        """Start a sandbox."""
        return await self._call(models.SandboxAnswer, "start_sandbox", {"sandbox_id": sandbox_id, "program": program, "memory": memory})

    async def stop(self, sandbox_id: str, *, memory: bool | None = OMIT) -> models.SandboxAnswer:
        """Stop a sandbox."""
        return await self._call(models.SandboxAnswer, "stop_sandbox", {"sandbox_id": sandbox_id, "memory": memory})

    async def extend(self, sandbox_id: str, *, seconds: int) -> models.SandboxAnswer:
        """Extend a sandbox's run."""
        return await self._call(models.SandboxAnswer, "extend_sandbox", {"sandbox_id": sandbox_id, "seconds": seconds})

    async def recycle(self, sandbox_id: str) -> models.SandboxAnswer:
        """Recycle a sandbox."""
        return await self._call(models.SandboxAnswer, "recycle_sandbox", {"sandbox_id": sandbox_id})

    async def link(self, sandbox_id: str, *, minutes: int = OMIT, port: int | None = OMIT) -> models.AccessTokenAnswer:
        """Create a link to a sandbox."""
        return await self._call(models.AccessTokenAnswer, "create_sandbox_token", {"sandbox_id": sandbox_id, "minutes": minutes, "port": port})

    def history(self, sandbox_id: str, *, limit: int | None = None) -> AsyncIterator[models.EventAnswer]:
        """Get a sandbox's history."""
        return self._items(models.EventAnswer, "get_sandbox_history", {"sandbox_id": sandbox_id}, limit)

    async def start_program(self, sandbox_id: str) -> models.SandboxAnswer:
        """Start a sandbox's program."""
        return await self._call(models.SandboxAnswer, "start_program", {"sandbox_id": sandbox_id})

    async def stop_program(self, sandbox_id: str) -> models.SandboxAnswer:
        """Stop a sandbox's program."""
        return await self._call(models.SandboxAnswer, "stop_program", {"sandbox_id": sandbox_id})

    async def restart_program(self, sandbox_id: str) -> models.SandboxAnswer:
        """Restart a sandbox's program."""
        return await self._call(models.SandboxAnswer, "restart_program", {"sandbox_id": sandbox_id})

class AsyncCommands(AsyncNoun):
    """Commands of one sandbox, which run in the background."""

    def list(self, *, limit: int | None = None) -> AsyncIterator[models.CommandAnswer]:
        """List commands."""
        return self._items(models.CommandAnswer, "list_commands", {}, limit)

    async def get(self, command_id: str) -> models.CommandAnswer:
        """Get a command."""
        return await self._call(models.CommandAnswer, "get_command", {"command_id": command_id})

    async def kill(self, command_id: str) -> models.CommandAnswer:
        """Kill a command."""
        return await self._call(models.CommandAnswer, "kill_command", {"command_id": command_id})

    async def signal(self, command_id: str, *, signal: Literal[
        "SIGHUP",
        "SIGINT",
        "SIGQUIT",
        "SIGKILL",
        "SIGUSR1",
        "SIGUSR2",
        "SIGTERM",
        "SIGCONT",
        "SIGSTOP",
        "SIGWINCH",
    ] = OMIT) -> models.CommandAnswer:
        """Send a signal to a command."""
        return await self._call(models.CommandAnswer, "signal_command", {"command_id": command_id, "signal": signal})

    async def write(self, command_id: str, *, data: str = OMIT, encoding: Literal["text", "base64"] = OMIT, close: bool = OMIT) -> None:
        """Write to a command's input."""
        await self._send("write_command_input", {"command_id": command_id, "data": data, "encoding": encoding, "close": close})

class AsyncVariables(AsyncNoun):
    """Variables and secrets of one sandbox; its programs have them from their next start on."""

    def list(self, *, limit: int | None = None) -> AsyncIterator[models.VariableAnswer]:
        """List a sandbox's variables."""
        return self._items(models.VariableAnswer, "list_sandbox_variables", {}, limit)

    async def set(self, name: str, *, value: str, secret: bool = OMIT, binding: Mapping[str, Any] | None = OMIT) -> models.VariableAnswer:
        """Set a variable of a sandbox."""
        return await self._call(models.VariableAnswer, "set_sandbox_variable", {"name": name, "value": value, "secret": secret, "binding": binding})

    async def remove(self, name: str) -> None:
        """Remove a variable of a sandbox."""
        await self._send("remove_sandbox_variable", {"name": name})

class AsyncPorts(AsyncNoun):
    """Ports that programs of one sandbox listen on."""

    def list(self, *, limit: int | None = None) -> AsyncIterator[models.PortAnswer]:
        """List the ports of a sandbox."""
        return self._items(models.PortAnswer, "list_ports", {}, limit)

class AsyncUsage(AsyncNoun):
    """What the account used, and what it costs."""

    def runs(self, *, sandbox_id: str | None = OMIT, project_id: str | None = OMIT, service_type: Literal["sandbox_runtime", "storage", "charge", "credit"] | None = OMIT, is_open: bool | None = OMIT, from_: datetime | None = OMIT, to: datetime | None = OMIT, limit: int | None = None) -> AsyncIterator[models.UsageAnswer]:
        """List usage."""
        return self._items(models.UsageAnswer, "list_usage", {"sandbox_id": sandbox_id, "project_id": project_id, "service_type": service_type, "is_open": is_open, "from": from_, "to": to}, limit)

    def bills(self, *, project_id: str | None = OMIT, sandbox_id: str | None = OMIT, service_type: Literal["sandbox_runtime", "storage", "charge", "credit"] | None = OMIT, from_: str | None = OMIT, to: str | None = OMIT, limit: int | None = None) -> AsyncIterator[models.BillAnswer]:
        """List bills."""
        return self._items(models.BillAnswer, "list_bills", {"project_id": project_id, "sandbox_id": sandbox_id, "service_type": service_type, "from": from_, "to": to}, limit)

    async def sums(self, *, by: Literal["day", "project", "sandbox", "service_type"] = OMIT, project_id: str | None = OMIT, sandbox_id: str | None = OMIT, service_type: Literal["sandbox_runtime", "storage", "charge", "credit"] | None = OMIT, from_: str | None = OMIT, to: str | None = OMIT) -> models.BillingSumsAnswer:
        """Sum bills."""
        return await self._call(models.BillingSumsAnswer, "sum_bills", {"by": by, "project_id": project_id, "sandbox_id": sandbox_id, "service_type": service_type, "from": from_, "to": to})

    async def month(self, *, by: Literal["day", "project", "sandbox", "service_type"] = OMIT, sandbox_id: str | None = OMIT) -> models.MonthToDateAnswer:
        """Get this month's cost so far."""
        return await self._call(models.MonthToDateAnswer, "get_month_to_date", {"by": by, "sandbox_id": sandbox_id})

    async def quotas(self) -> models.QuotasAnswer:
        """Get your quotas and their use."""
        return await self._call(models.QuotasAnswer, "get_quota", {})

class AsyncPlatform(AsyncNoun):
    """Its nouns, unbound."""

    @property
    def projects(self) -> AsyncProjects:
        return AsyncProjects(self._client)

    @property
    def previews(self) -> AsyncPreviews:
        return AsyncPreviews(self._client)

    @property
    def project_variables(self) -> AsyncProjectVariables:
        return AsyncProjectVariables(self._client)

    @property
    def templates(self) -> AsyncTemplates:
        return AsyncTemplates(self._client)

    @property
    def images(self) -> AsyncImages:
        return AsyncImages(self._client)

    @property
    def volumes(self) -> AsyncVolumes:
        return AsyncVolumes(self._client)

    @property
    def keys(self) -> AsyncKeys:
        return AsyncKeys(self._client)

    @property
    def ssh_keys(self) -> AsyncSshKeys:
        return AsyncSshKeys(self._client)

    @property
    def sandboxes(self) -> AsyncSandboxes:
        return AsyncSandboxes(self._client)

    @property
    def usage(self) -> AsyncUsage:
        return AsyncUsage(self._client)
