/** The Platform's nouns, as `generate_operations.py` writes them. */

import { Noun, type Answer, type Fields, type Item, type Options } from "./noun.js";

/** Calls that make something. */
export const KEYED: ReadonlySet<string> = new Set([
  "/api/v1/admin/billing/charges",
  "/api/v1/admin/invitations",
  "/api/v1/admin/notifications",
  "/api/v1/api-keys",
  "/api/v1/images",
  "/api/v1/projects",
  "/api/v1/sandboxes",
  "/api/v1/sandboxes/{sandbox_id}/commands",
  "/api/v1/templates",
  "/api/v1/volumes",
  "/v1/admin/reservations",
  "/v1/admin/sandboxes/{sandbox_id}/extend",
  "/v1/sandboxes/{sandbox_id}/extend",
]);

/** Projects of the account. */
export class Projects extends Noun {
  /** List your projects. */
  list(fields: Fields<"list_projects"> = {}, limit = Infinity): AsyncIterable<Item<"list_projects", "projects">> {
    return this.items("list_projects", "GET", "/api/v1/projects", [], fields, "projects", limit);
  }
  /** Create a project. */
  create(fields: Fields<"create_project">, options: Options = {}): Promise<Answer<"create_project">> {
    return this.call("create_project", "POST", "/api/v1/projects", [], fields, "body", options);
  }
  /** Get a project. */
  get(projectId: string): Promise<Answer<"get_project">> {
    return this.call("get_project", "GET", "/api/v1/projects/{project_id}", [projectId], {}, "body");
  }
  /** Rename or describe a project. */
  update(projectId: string, fields: Fields<"update_project"> = {}): Promise<Answer<"update_project">> {
    return this.call("update_project", "PATCH", "/api/v1/projects/{project_id}", [projectId], fields, "body");
  }
  /** Archive a project. */
  archive(projectId: string): Promise<Answer<"archive_project">> {
    return this.call("archive_project", "POST", "/api/v1/projects/{project_id}/archive", [projectId], {}, "body");
  }
  /** Unarchive a project. */
  unarchive(projectId: string): Promise<Answer<"unarchive_project">> {
    return this.call("unarchive_project", "POST", "/api/v1/projects/{project_id}/unarchive", [projectId], {}, "body");
  }
  /** Make a project the default. */
  makeDefault(projectId: string): Promise<Answer<"make_project_default">> {
    return this.call("make_project_default", "POST", "/api/v1/projects/{project_id}/make-default", [projectId], {}, "body");
  }
  /** Delete a project. */
  delete(projectId: string): Promise<Answer<"delete_project">> {
    return this.call("delete_project", "DELETE", "/api/v1/projects/{project_id}", [projectId], {}, "body");
  }
  /** List a project's files. */
  files(projectId: string, fields: Fields<"list_project_files"> = {}): Promise<Answer<"list_project_files">> {
    return this.call("list_project_files", "GET", "/api/v1/projects/{project_id}/files", [projectId], fields, "query");
  }
  /** Change a project's files. */
  changeFiles(projectId: string, fields: Fields<"change_project_files"> = {}): Promise<Answer<"change_project_files">> {
    return this.call("change_project_files", "PUT", "/api/v1/projects/{project_id}/files", [projectId], fields, "body");
  }
  /** Create a token for a web page. */
  link(projectId: string, fields: Fields<"create_project_token"> = {}): Promise<Answer<"create_project_token">> {
    return this.call("create_project_token", "POST", "/api/v1/projects/{project_id}/tokens", [projectId], fields, "body");
  }
  /** List the versions of a project's files. */
  versions(projectId: string): Promise<Answer<"list_project_versions">> {
    return this.call("list_project_versions", "GET", "/api/v1/projects/{project_id}/versions", [projectId], {}, "body");
  }
  /** Compare two versions of a project's files. */
  compare(projectId: string, version: string, fields: Fields<"compare_project_versions"> = {}): Promise<Answer<"compare_project_versions">> {
    return this.call("compare_project_versions", "GET", "/api/v1/projects/{project_id}/versions/{version}/changes", [projectId, version], fields, "query");
  }
  /** Restore a version of a project's files. */
  restore(projectId: string, version: string, fields: Fields<"restore_project_version"> = {}): Promise<Answer<"restore_project_version">> {
    return this.call("restore_project_version", "POST", "/api/v1/projects/{project_id}/versions/{version}/restore", [projectId, version], fields, "body");
  }
  /** Remove earlier versions of a project's files. */
  removeVersions(projectId: string, fields: Fields<"remove_project_versions"> = {}): Promise<Answer<"remove_project_versions">> {
    return this.call("remove_project_versions", "DELETE", "/api/v1/projects/{project_id}/versions", [projectId], fields, "query");
  }
}

/** Previews of projects: a project's files, served. */
export class Previews extends Noun {
  /** Sync a preview. */
  sync(projectId: string): Promise<Answer<"sync_preview">> {
    return this.call("sync_preview", "POST", "/api/v1/projects/{project_id}/sync", [projectId], {}, "body");
  }
  /** Get a preview's status. */
  status(projectId: string): Promise<Answer<"get_preview_status">> {
    return this.call("get_preview_status", "GET", "/api/v1/projects/{project_id}/sandbox/status", [projectId], {}, "body");
  }
  /** Look at a preview. */
  look(projectId: string, fields: Fields<"look_at_preview"> = {}): Promise<Answer<"look_at_preview">> {
    return this.call("look_at_preview", "POST", "/api/v1/projects/{project_id}/sandbox/look", [projectId], fields, "body");
  }
  /** Stop a preview. */
  stop(projectId: string): Promise<Answer<"stop_preview">> {
    return this.call("stop_preview", "DELETE", "/api/v1/projects/{project_id}/sandbox", [projectId], {}, "body");
  }
  /** Get a preview's history. */
  history(projectId: string, fields: Fields<"get_preview_history"> = {}, limit = Infinity): AsyncIterable<Item<"get_preview_history", "events">> {
    return this.items("get_preview_history", "GET", "/api/v1/projects/{project_id}/sandbox/history", [projectId], fields, "events", limit);
  }
  /** Publish a project. */
  publish(projectId: string, fields: Fields<"publish_project"> = {}): Promise<Answer<"publish_project">> {
    return this.call("publish_project", "POST", "/api/v1/projects/{project_id}/publish", [projectId], fields, "body");
  }
  /** Get what is published of a project. */
  published(projectId: string): Promise<Answer<"get_publication">> {
    return this.call("get_publication", "GET", "/api/v1/projects/{project_id}/publish", [projectId], {}, "body");
  }
  /** Unpublish a project. */
  unpublish(projectId: string): Promise<Answer<"unpublish_project">> {
    return this.call("unpublish_project", "DELETE", "/api/v1/projects/{project_id}/publish", [projectId], {}, "body");
  }
  /** Publish a project at a domain. */
  addDomain(projectId: string, domain: string): Promise<Answer<"add_publication_domain">> {
    return this.call("add_publication_domain", "PUT", "/api/v1/projects/{project_id}/publish/domains/{domain}", [projectId, domain], {}, "body");
  }
  /** Remove a domain of a project. */
  removeDomain(projectId: string, domain: string): Promise<Answer<"remove_publication_domain">> {
    return this.call("remove_publication_domain", "DELETE", "/api/v1/projects/{project_id}/publish/domains/{domain}", [projectId, domain], {}, "body");
  }
}

/** Variables and secrets of a project, which its sandboxes have too. */
export class ProjectVariables extends Noun {
  /** List a project's variables. */
  list(projectId: string, fields: Fields<"list_project_variables"> = {}, limit = Infinity): AsyncIterable<Item<"list_project_variables", "variables">> {
    return this.items("list_project_variables", "GET", "/api/v1/projects/{project_id}/env", [projectId], fields, "variables", limit);
  }
  /** Set a variable of a project. */
  set(projectId: string, name: string, fields: Fields<"set_project_variable">): Promise<Answer<"set_project_variable">> {
    return this.call("set_project_variable", "PUT", "/api/v1/projects/{project_id}/env/{name}", [projectId, name], fields, "body");
  }
  /** Remove a variable of a project. */
  remove(projectId: string, name: string): Promise<Answer<"remove_project_variable">> {
    return this.call("remove_project_variable", "DELETE", "/api/v1/projects/{project_id}/env/{name}", [projectId, name], {}, "body");
  }
}

/** Templates that sandboxes are created from. */
export class Templates extends Noun {
  /** List templates. */
  list(fields: Fields<"list_templates"> = {}, limit = Infinity): AsyncIterable<Item<"list_templates", "templates">> {
    return this.items("list_templates", "GET", "/api/v1/templates", [], fields, "templates", limit);
  }
  /** Create a template. */
  create(fields: Fields<"create_template">, options: Options = {}): Promise<Answer<"create_template">> {
    return this.call("create_template", "POST", "/api/v1/templates", [], fields, "body", options);
  }
  /** Get a template. */
  get(templateId: string): Promise<Answer<"get_template">> {
    return this.call("get_template", "GET", "/api/v1/templates/{template_id}", [templateId], {}, "body");
  }
  /** Change a template. */
  update(templateId: string, fields: Fields<"update_template"> = {}): Promise<Answer<"update_template">> {
    return this.call("update_template", "PATCH", "/api/v1/templates/{template_id}", [templateId], fields, "body");
  }
  /** Delete a template. */
  delete(templateId: string): Promise<Answer<"delete_template">> {
    return this.call("delete_template", "DELETE", "/api/v1/templates/{template_id}", [templateId], {}, "body");
  }
}

/** Images of root file systems. */
export class Images extends Noun {
  /** List your images. */
  list(fields: Fields<"list_images"> = {}, limit = Infinity): AsyncIterable<Item<"list_images", "images">> {
    return this.items("list_images", "GET", "/api/v1/images", [], fields, "images", limit);
  }
  /** Pull an image. */
  pull(fields: Fields<"pull_image">, options: Options = {}): Promise<Answer<"pull_image">> {
    return this.call("pull_image", "POST", "/api/v1/images", [], fields, "body", options);
  }
  /** Get an image. */
  get(imageId: string): Promise<Answer<"get_image">> {
    return this.call("get_image", "GET", "/api/v1/images/{image_id}", [imageId], {}, "body");
  }
  /** Delete an image. */
  delete(imageId: string): Promise<Answer<"delete_image">> {
    return this.call("delete_image", "DELETE", "/api/v1/images/{image_id}", [imageId], {}, "body");
  }
}

/** Volumes, which outlive the sandboxes that mount them. */
export class Volumes extends Noun {
  /** List your volumes. */
  list(fields: Fields<"list_volumes"> = {}, limit = Infinity): AsyncIterable<Item<"list_volumes", "volumes">> {
    return this.items("list_volumes", "GET", "/api/v1/volumes", [], fields, "volumes", limit);
  }
  /** Create a volume. */
  create(fields: Fields<"create_volume">, options: Options = {}): Promise<Answer<"create_volume">> {
    return this.call("create_volume", "POST", "/api/v1/volumes", [], fields, "body", options);
  }
  /** Get a volume. */
  get(volumeId: string): Promise<Answer<"get_volume">> {
    return this.call("get_volume", "GET", "/api/v1/volumes/{volume_id}", [volumeId], {}, "body");
  }
  /** Resize a volume. */
  resize(volumeId: string, fields: Fields<"resize_volume">): Promise<Answer<"resize_volume">> {
    return this.call("resize_volume", "PATCH", "/api/v1/volumes/{volume_id}", [volumeId], fields, "body");
  }
  /** Delete a volume. */
  delete(volumeId: string): Promise<Answer<"delete_volume">> {
    return this.call("delete_volume", "DELETE", "/api/v1/volumes/{volume_id}", [volumeId], {}, "body");
  }
}

/** API keys of the account. */
export class Keys extends Noun {
  /** List your API keys. */
  list(fields: Fields<"list_api_keys"> = {}, limit = Infinity): AsyncIterable<Item<"list_api_keys", "api_keys">> {
    return this.items("list_api_keys", "GET", "/api/v1/api-keys", [], fields, "api_keys", limit);
  }
  /** Create an API key. */
  create(fields: Fields<"create_api_key">, options: Options = {}): Promise<Answer<"create_api_key">> {
    return this.call("create_api_key", "POST", "/api/v1/api-keys", [], fields, "body", options);
  }
  /** Get an API key. */
  get(keyId: string): Promise<Answer<"get_api_key">> {
    return this.call("get_api_key", "GET", "/api/v1/api-keys/{key_id}", [keyId], {}, "body");
  }
  /** Rename or describe an API key. */
  update(keyId: string, fields: Fields<"update_api_key"> = {}): Promise<Answer<"update_api_key">> {
    return this.call("update_api_key", "PATCH", "/api/v1/api-keys/{key_id}", [keyId], fields, "body");
  }
  /** Activate an API key. */
  activate(keyId: string): Promise<Answer<"activate_api_key">> {
    return this.call("activate_api_key", "POST", "/api/v1/api-keys/{key_id}/activate", [keyId], {}, "body");
  }
  /** Deactivate an API key. */
  deactivate(keyId: string): Promise<Answer<"deactivate_api_key">> {
    return this.call("deactivate_api_key", "POST", "/api/v1/api-keys/{key_id}/deactivate", [keyId], {}, "body");
  }
  /** Delete an API key. */
  delete(keyId: string): Promise<Answer<"delete_api_key">> {
    return this.call("delete_api_key", "DELETE", "/api/v1/api-keys/{key_id}", [keyId], {}, "body");
  }
}

/** Keys that log in to the account's sandboxes by SSH. */
export class SshKeys extends Noun {
  /** List your SSH keys. */
  list(fields: Fields<"list_ssh_keys"> = {}, limit = Infinity): AsyncIterable<Item<"list_ssh_keys", "ssh_keys">> {
    return this.items("list_ssh_keys", "GET", "/api/v1/ssh-keys", [], fields, "ssh_keys", limit);
  }
  /** Add an SSH key. */
  add(fields: Fields<"add_ssh_key">): Promise<Answer<"add_ssh_key">> {
    return this.call("add_ssh_key", "POST", "/api/v1/ssh-keys", [], fields, "body");
  }
  /** Remove an SSH key. */
  remove(sshKeyId: string): Promise<Answer<"remove_ssh_key">> {
    return this.call("remove_ssh_key", "DELETE", "/api/v1/ssh-keys/{ssh_key_id}", [sshKeyId], {}, "body");
  }
  /** Get the address of the SSH server. */
  address(): Promise<Answer<"get_ssh_address">> {
    return this.call("get_ssh_address", "GET", "/api/v1/ssh-keys/address", [], {}, "body");
  }
}

/** Sandboxes of the account, by id. */
export class Sandboxes extends Noun {
  /** List sandboxes. */
  list(fields: Fields<"list_sandboxes"> = {}, limit = Infinity): AsyncIterable<Item<"list_sandboxes", "sandboxes">> {
    return this.items("list_sandboxes", "GET", "/api/v1/sandboxes", [], fields, "sandboxes", limit);
  }
  /** Create a sandbox. */
  create(fields: Fields<"create_sandbox">, options: Options = {}): Promise<Answer<"create_sandbox">> {
    return this.call("create_sandbox", "POST", "/api/v1/sandboxes", [], fields, "body", options);
  }
  /** Get a sandbox. */
  get(sandboxId: string): Promise<Answer<"get_sandbox">> {
    return this.call("get_sandbox", "GET", "/api/v1/sandboxes/{sandbox_id}", [sandboxId], {}, "body");
  }
  /** Change a sandbox. */
  update(sandboxId: string, fields: Fields<"update_sandbox"> = {}): Promise<Answer<"update_sandbox">> {
    return this.call("update_sandbox", "PATCH", "/api/v1/sandboxes/{sandbox_id}", [sandboxId], fields, "body");
  }
  /** Start a sandbox. */
  start(sandboxId: string, fields: Fields<"start_sandbox"> = {}): Promise<Answer<"start_sandbox">> {
    return this.call("start_sandbox", "POST", "/api/v1/sandboxes/{sandbox_id}/start", [sandboxId], fields, "body");
  }
  /** Stop a sandbox. */
  stop(sandboxId: string, fields: Fields<"stop_sandbox"> = {}): Promise<Answer<"stop_sandbox">> {
    return this.call("stop_sandbox", "POST", "/api/v1/sandboxes/{sandbox_id}/stop", [sandboxId], fields, "body");
  }
  /** Extend a sandbox's run. */
  extend(sandboxId: string, fields: Fields<"extend_sandbox">): Promise<Answer<"extend_sandbox">> {
    return this.call("extend_sandbox", "POST", "/api/v1/sandboxes/{sandbox_id}/extend", [sandboxId], fields, "body");
  }
  /** Recycle a sandbox. */
  recycle(sandboxId: string): Promise<Answer<"recycle_sandbox">> {
    return this.call("recycle_sandbox", "DELETE", "/api/v1/sandboxes/{sandbox_id}", [sandboxId], {}, "body");
  }
  /** Create a link to a sandbox. */
  link(sandboxId: string, fields: Fields<"create_sandbox_token"> = {}): Promise<Answer<"create_sandbox_token">> {
    return this.call("create_sandbox_token", "POST", "/api/v1/sandboxes/{sandbox_id}/tokens", [sandboxId], fields, "body");
  }
  /** Get a sandbox's history. */
  history(sandboxId: string, fields: Fields<"get_sandbox_history"> = {}, limit = Infinity): AsyncIterable<Item<"get_sandbox_history", "events">> {
    return this.items("get_sandbox_history", "GET", "/api/v1/sandboxes/{sandbox_id}/history", [sandboxId], fields, "events", limit);
  }
  /** Start a sandbox's program. */
  startProgram(sandboxId: string): Promise<Answer<"start_program">> {
    return this.call("start_program", "POST", "/api/v1/sandboxes/{sandbox_id}/program/start", [sandboxId], {}, "body");
  }
  /** Stop a sandbox's program. */
  stopProgram(sandboxId: string): Promise<Answer<"stop_program">> {
    return this.call("stop_program", "POST", "/api/v1/sandboxes/{sandbox_id}/program/stop", [sandboxId], {}, "body");
  }
  /** Restart a sandbox's program. */
  restartProgram(sandboxId: string): Promise<Answer<"restart_program">> {
    return this.call("restart_program", "POST", "/api/v1/sandboxes/{sandbox_id}/program/restart", [sandboxId], {}, "body");
  }
}

/** Commands of one sandbox, which run in the background. */
export class Commands extends Noun {
  /** List commands. */
  list(limit = Infinity): AsyncIterable<Item<"list_commands", "commands">> {
    return this.items("list_commands", "GET", "/api/v1/sandboxes/{sandbox_id}/commands", [this.of], {}, "commands", limit);
  }
  /** Get a command. */
  get(commandId: string): Promise<Answer<"get_command">> {
    return this.call("get_command", "GET", "/api/v1/sandboxes/{sandbox_id}/commands/{command_id}", [this.of, commandId], {}, "body");
  }
  /** Kill a command. */
  kill(commandId: string): Promise<Answer<"kill_command">> {
    return this.call("kill_command", "DELETE", "/api/v1/sandboxes/{sandbox_id}/commands/{command_id}", [this.of, commandId], {}, "body");
  }
  /** Send a signal to a command. */
  signal(commandId: string, fields: Fields<"signal_command"> = {}): Promise<Answer<"signal_command">> {
    return this.call("signal_command", "POST", "/api/v1/sandboxes/{sandbox_id}/commands/{command_id}/signal", [this.of, commandId], fields, "body");
  }
  /** Write to a command's input. */
  write(commandId: string, fields: Fields<"write_command_input"> = {}): Promise<Answer<"write_command_input">> {
    return this.call("write_command_input", "POST", "/api/v1/sandboxes/{sandbox_id}/commands/{command_id}/input", [this.of, commandId], fields, "body");
  }
}

/** Variables and secrets of one sandbox; its programs have them from their next start on. */
export class Variables extends Noun {
  /** List a sandbox's variables. */
  list(fields: Fields<"list_sandbox_variables"> = {}, limit = Infinity): AsyncIterable<Item<"list_sandbox_variables", "variables">> {
    return this.items("list_sandbox_variables", "GET", "/api/v1/sandboxes/{sandbox_id}/env", [this.of], fields, "variables", limit);
  }
  /** Set a variable of a sandbox. */
  set(name: string, fields: Fields<"set_sandbox_variable">): Promise<Answer<"set_sandbox_variable">> {
    return this.call("set_sandbox_variable", "PUT", "/api/v1/sandboxes/{sandbox_id}/env/{name}", [this.of, name], fields, "body");
  }
  /** Remove a variable of a sandbox. */
  remove(name: string): Promise<Answer<"remove_sandbox_variable">> {
    return this.call("remove_sandbox_variable", "DELETE", "/api/v1/sandboxes/{sandbox_id}/env/{name}", [this.of, name], {}, "body");
  }
}

/** Ports that programs of one sandbox listen on. */
export class Ports extends Noun {
  /** List the ports of a sandbox. */
  list(limit = Infinity): AsyncIterable<Item<"list_ports", "ports">> {
    return this.items("list_ports", "GET", "/api/v1/sandboxes/{sandbox_id}/ports", [this.of], {}, "ports", limit);
  }
}

/** What the account used, and what it costs. */
export class Usage extends Noun {
  /** List usage. */
  runs(fields: Fields<"list_usage"> = {}, limit = Infinity): AsyncIterable<Item<"list_usage", "usage">> {
    return this.items("list_usage", "GET", "/api/v1/usage", [], fields, "usage", limit);
  }
  /** List bills. */
  bills(fields: Fields<"list_bills"> = {}, limit = Infinity): AsyncIterable<Item<"list_bills", "bills">> {
    return this.items("list_bills", "GET", "/api/v1/billing", [], fields, "bills", limit);
  }
  /** Sum bills. */
  sums(fields: Fields<"sum_bills"> = {}): Promise<Answer<"sum_bills">> {
    return this.call("sum_bills", "GET", "/api/v1/billing/summary", [], fields, "query");
  }
  /** Get this month's cost so far. */
  month(fields: Fields<"get_month_to_date"> = {}): Promise<Answer<"get_month_to_date">> {
    return this.call("get_month_to_date", "GET", "/api/v1/billing/month-to-date", [], fields, "query");
  }
  /** Get your quotas and their use. */
  quotas(): Promise<Answer<"get_quota">> {
    return this.call("get_quota", "GET", "/api/v1/me/quota", [], {}, "body");
  }
}

/** Its nouns, unbound. */
export class Platform extends Noun {
  readonly projects = new Projects(this.api);
  readonly previews = new Previews(this.api);
  readonly projectVariables = new ProjectVariables(this.api);
  readonly templates = new Templates(this.api);
  readonly images = new Images(this.api);
  readonly volumes = new Volumes(this.api);
  readonly keys = new Keys(this.api);
  readonly sshKeys = new SshKeys(this.api);
  readonly sandboxes = new Sandboxes(this.api);
  readonly usage = new Usage(this.api);
}
