/** A sandbox of an account, its files, and its commands. */

import type { Api } from "./connection.js";
import { SandyardError } from "./errors.js";
import type { Fields } from "./noun.js";
import { Commands, Platform, Ports, Variables } from "./nouns.js";
import type { components } from "./schema.js";

type SandboxAnswer = components["schemas"]["SandboxAnswer"];
type FileAnswer = components["schemas"]["FileAnswer"];
type Signal = "SIGHUP" | "SIGINT" | "SIGQUIT" | "SIGKILL" | "SIGUSR1" | "SIGUSR2" | "SIGTERM" | "SIGCONT" | "SIGSTOP";

export interface Output {
  stream: string;
  text: string;
}

/** How a command ended; 128 plus the number of the signal that ended it. */
export interface Result {
  exitCode: number;
  stdout: string;
  stderr: string;
  timedOut: boolean;
}

export interface CommandWish {
  env?: Record<string, string>;
  folder?: string;
  hasInput?: boolean;
}

export interface WaitWish {
  /** The command is killed when this time is over. */
  timeoutSec?: number;
  onOutput?: (output: Output) => void;
}

const POLL_MS = 200;
const COMMANDS = "/api/v1/sandboxes/{sandbox_id}/commands";
const FILES = "/api/v1/sandboxes/{sandbox_id}/files";

/** A command that runs in the background; it can be found again by its id, from any program. */
export class Command {
  readonly #commands: Commands;

  constructor(
    readonly api: Api,
    readonly sandboxId: string,
    readonly commandId: string,
  ) {
    this.#commands = new Commands(api, sandboxId);
  }

  /** All of its output, until it ends: read by offset, so lost connections lose and repeat nothing. */
  async *output(): AsyncIterable<Output> {
    for (let offset = 0; ; ) {
      const path = { sandbox_id: this.sandboxId, command_id: this.commandId };
      const { data } = await this.api.GET(`${COMMANDS}/{command_id}/output`, { params: { path, query: { offset } } });
      const page = data as components["schemas"]["OutputAnswer"];
      for (const { stream, data: text } of page.output) yield { stream, text };
      offset = page.next_offset;
      if (page.is_complete) return;
      if (page.output.length === 0) await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }

  /** Its result when it ends, or when its time is over: then it is killed. */
  async wait({ timeoutSec, onOutput }: WaitWish = {}): Promise<Result> {
    const written: Record<string, string> = { stdout: "", stderr: "" };
    let timedOut = false;
    const stop = () => {
      timedOut = true;
      void this.kill().catch(() => undefined);
    };
    const timer = timeoutSec === undefined ? undefined : setTimeout(stop, timeoutSec * 1000);
    try {
      for await (const output of this.output()) {
        written[output.stream] = (written[output.stream] ?? "") + output.text;
        onOutput?.(output);
      }
    } finally {
      clearTimeout(timer);
    }
    const ended = await this.#commands.get(this.commandId);
    return { exitCode: ended.exit_code ?? -1, stdout: written["stdout"]!, stderr: written["stderr"]!, timedOut };
  }

  /** Write to its standard input; it must have been started with `hasInput`. */
  async write(data: string, { close = false } = {}): Promise<void> {
    await this.#commands.write(this.commandId, { data, close });
  }

  async signal(name: Signal): Promise<void> {
    await this.#commands.signal(this.commandId, { signal: name });
  }

  /** Kill its process group. */
  async kill(): Promise<void> {
    await this.#commands.kill(this.commandId);
  }
}

/** Files of a sandbox; paths are absolute or relative to `/workspace`. */
export class Files {
  constructor(
    readonly api: Api,
    readonly sandboxId: string,
  ) {}

  async read(path: string): Promise<Uint8Array> {
    const { data } = await this.api.GET(FILES, { params: this.#at(path), parseAs: "arrayBuffer" });
    return new Uint8Array(data as unknown as ArrayBuffer);
  }

  /** Completely or not at all; makes the folders above it. */
  async write(path: string, content: Uint8Array | string): Promise<FileAnswer> {
    const body = typeof content === "string" ? new TextEncoder().encode(content) : content;
    const { data } = await this.api.PUT(FILES, {
      params: this.#at(path),
      body: body as unknown as string,
      bodySerializer: (whole) => whole as unknown as BodyInit,
      headers: { "Content-Type": "application/octet-stream" },
    });
    return data as FileAnswer;
  }

  async list(path = "/workspace", { depth = 1 } = {}): Promise<FileAnswer[]> {
    const found: FileAnswer[] = [];
    for (let cursor: string | null | undefined; cursor !== null; ) {
      const query = { path, depth, ...(cursor ? { cursor } : {}) };
      const { data } = await this.api.GET(`${FILES}/list`, { params: { path: { sandbox_id: this.sandboxId }, query } });
      found.push(...(data?.files ?? []));
      cursor = data?.next_cursor ?? null;
    }
    return found;
  }

  /** A file, or a folder with its contents. */
  async remove(path: string): Promise<void> {
    await this.api.DELETE(FILES, { params: this.#at(path) });
  }

  #at(path: string) {
    return { path: { sandbox_id: this.sandboxId }, query: { path } };
  }
}

export interface SandboxWish extends Partial<Omit<Fields<"create_sandbox">, "template_id">> {
  /** Name or id. */
  template: string;
  /** Whether to start it. */
  start?: boolean;
}

/** `await using sandbox = await Sandbox.create(api, { template: "python" })` deletes it at the end of the block. */
export class Sandbox implements AsyncDisposable {
  readonly files: Files;
  readonly env: Variables;
  readonly commands: Commands;
  readonly #platform: Platform;

  private constructor(
    readonly api: Api,
    public told: SandboxAnswer,
  ) {
    this.files = new Files(api, told.sandbox_id);
    this.env = new Variables(api, told.sandbox_id);
    this.commands = new Commands(api, told.sandbox_id);
    this.#platform = new Platform(api);
  }

  /** One that does not start is deleted again. */
  static async create(api: Api, { template, start = true, ...fields }: SandboxWish): Promise<Sandbox> {
    const name = fields.name ?? `sandbox-${crypto.randomUUID().slice(0, 12)}`;
    const wish = { ...fields, name, template_id: await templateId(api, template) };
    const sandbox = new Sandbox(api, await new Platform(api).sandboxes.create(wish));
    try {
      if (start) await sandbox.start();
    } catch (error) {
      await sandbox.recycle().catch(() => undefined);
      throw error;
    }
    return sandbox;
  }

  static async get(api: Api, sandboxId: string): Promise<Sandbox> {
    return new Sandbox(api, await new Platform(api).sandboxes.get(sandboxId));
  }

  get sandboxId(): string {
    return this.told.sandbox_id;
  }

  get name(): string {
    return this.told.name;
  }

  async refresh(): Promise<SandboxAnswer> {
    return (this.told = await this.#platform.sandboxes.get(this.sandboxId));
  }

  async start(): Promise<void> {
    do this.told = await this.#platform.sandboxes.start(this.sandboxId);
    while (this.told.status === "starting");
  }

  /** Its files are kept. */
  async stop(): Promise<void> {
    this.told = await this.#platform.sandboxes.stop(this.sandboxId);
  }

  /** Run a command, or a shell command line, to its end. It is started at most once. */
  async run(command: string | string[], wish: CommandWish & WaitWish = {}): Promise<Result> {
    return (await this.spawn(command, wish)).wait(wish);
  }

  /** Start a command in the background; it runs on when this program ends. */
  async spawn(command: string | string[], { env, folder, hasInput = false }: CommandWish = {}): Promise<Command> {
    const given = { ...(env && { env }), ...(folder && { folder }) };
    const body = { command, background: true, has_input: hasInput, ...given } as components["schemas"]["NewCommandBody"];
    const params = { path: { sandbox_id: this.sandboxId } };
    const { data } = await this.api.POST(COMMANDS, { params, body });
    return new Command(this.api, this.sandboxId, (data as components["schemas"]["CommandAnswer"]).command_id);
  }

  /** The ports that its programs listen on, with their addresses. */
  async ports(): Promise<components["schemas"]["PortAnswer"][]> {
    const found = [];
    for await (const each of new Ports(this.api, this.sandboxId).list()) found.push(each);
    return found;
  }

  /** The id of a template with its files as they are now, for other sandboxes. */
  async snapshot(name?: string): Promise<string> {
    const path = `/e2b/sandboxes/${this.sandboxId}/snapshots`;
    const send = this.api.POST as unknown as (path: string, init: object) => Promise<{ data: { snapshotID: string } }>;
    return (await send(path, { body: name === undefined ? {} : { name } })).data.snapshotID;
  }

  /** A link and a token for the program that listens on the port. */
  async link(fields: Fields<"create_sandbox_token"> = {}): Promise<components["schemas"]["AccessTokenAnswer"]> {
    return this.#platform.sandboxes.link(this.sandboxId, fields);
  }

  /** The last lines of its program. */
  async logs({ lines = 100 } = {}): Promise<string[]> {
    const params = { path: { sandbox_id: this.sandboxId }, query: { lines } };
    const { data } = await this.api.GET("/api/v1/sandboxes/{sandbox_id}/logs", { params });
    return [...(data as components["schemas"]["LogsAnswer"]).lines];
  }

  /** Delete it and its files; one that is deleted already is no error. */
  async recycle(): Promise<void> {
    try {
      await this.#platform.sandboxes.recycle(this.sandboxId);
    } catch (error) {
      const isGone = error instanceof SandyardError && (error.status === 404 || error.code === "SANDBOX_RECYCLED");
      if (!isGone) throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.recycle();
  }
}

/** The id of a template, given its id or its name; official ones take precedence. */
async function templateId(api: Api, template: string): Promise<string> {
  if (template.startsWith("tpl-")) return template;
  const named = [];
  for await (const each of new Platform(api).templates.list({ q: template })) {
    if (each.name === template) named.push(each);
  }
  const [first] = named.sort((one, other) => Number(other.is_official) - Number(one.is_official));
  if (first === undefined) throw new SandyardError(404, "TEMPLATE_UNKNOWN", `There is no template ${template}.`, undefined, undefined);
  return first.template_id;
}
