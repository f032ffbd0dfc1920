// The calls that E2B's JavaScript SDKs of 2025 have, at the hosts that they form themselves. Run with E2B_API_KEY and
// E2B_DOMAIN set, NODE_EXTRA_CA_CERTS if need be, and the folder of node_modules as its argument; names below `test` are
// those of this machine. It ends with 0 if all is well.
import assert from 'node:assert/strict'
import dns from 'node:dns'
import { createRequire } from 'node:module'

const lookup = dns.lookup
dns.lookup = (host, ...rest) => lookup(host.endsWith('.test') ? '127.0.0.1' : host, ...rest)
const { CommandExitError, NotFoundError, Sandbox, TimeoutError } = createRequire(`${process.argv[2]}/`)('e2b')

const mine = `b ${process.pid}`
const sandbox = await Sandbox.create({ timeoutMs: 120_000, metadata: { a: mine }, envs: { COLOUR: 'red' } })
try {
  await commands()
  await files()
  await terminal()
  await control()
} finally {
  assert.equal(await Sandbox.kill(sandbox.sandboxId), true)
}
assert.equal(await sandbox.isRunning(), false)
await assert.rejects(Sandbox.connect(sandbox.sandboxId), (error) => error instanceof NotFoundError)

async function commands() {
  const done = await sandbox.commands.run('echo out; echo err >&2; echo $COLOUR')
  assert.deepEqual([done.stdout, done.stderr, done.exitCode], ['out\nred\n', 'err\n', 0])
  await assert.rejects(sandbox.commands.run('exit 3'), (error) => error instanceof CommandExitError && error.exitCode === 3)
  await assert.rejects(sandbox.commands.run('sleep 30', { timeoutMs: 500 }), (error) => error instanceof TimeoutError)
  let typed = ''
  const handle = await sandbox.commands.run('cat', { background: true, stdin: true, onStdout: (text) => { typed += text } })
  await sandbox.commands.sendStdin(handle.pid, 'one\n')
  await until(() => typed === 'one\n')
  assert.ok((await sandbox.commands.list()).some((each) => each.pid === handle.pid))
  const again = await sandbox.commands.connect(handle.pid)
  assert.equal(await again.kill(), true)
}

async function files() {
  await sandbox.files.write('deep/file.txt', 'héllo')
  assert.equal(await sandbox.files.read('deep/file.txt'), 'héllo')
  const content = new Uint8Array(100_000).map((_, at) => at % 256)
  await sandbox.files.write('binary', content.buffer)
  assert.deepEqual(await sandbox.files.read('binary', { format: 'bytes' }), content)
  assert.deepEqual((await sandbox.files.list('deep')).map((each) => each.name), ['file.txt'])
  assert.equal(await sandbox.files.makeDir('made'), true)
  assert.equal(await sandbox.files.exists('nothing'), false)
  await assert.rejects(sandbox.files.read('missing'), (error) => error instanceof NotFoundError)
  const seen = []
  const watch = await sandbox.files.watchDir('made', (event) => seen.push(event.type))
  await sandbox.files.write('made/new', 'x')
  await until(() => seen.includes('write'))
  await watch.stop()
}

async function terminal() {
  let shown = ''
  const opened = await sandbox.pty.create({ cols: 80, rows: 24, onData: (data) => { shown += Buffer.from(data) } })
  await sandbox.pty.sendInput(opened.pid, new TextEncoder().encode('echo $((6*7)); exit\n'))
  await opened.wait()
  assert.match(shown, /42/)
}

async function control() {
  assert.deepEqual((await sandbox.getInfo()).metadata, { a: mine })
  await sandbox.setTimeout(600_000)
  const listed = await Sandbox.list({ query: { metadata: { a: mine } } }).nextItems()
  assert.deepEqual(listed.map((each) => each.sandboxId), [sandbox.sandboxId])
  assert.ok((await sandbox.getMetrics()).length > 0)
  await sandbox.betaPause()
  assert.equal(await sandbox.isRunning(), false)
  const resumed = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 100_000 })
  assert.equal(await resumed.files.read('deep/file.txt'), 'héllo')
}

async function until(answers) {
  for (const end = Date.now() + 20_000; !answers(); ) {
    assert.ok(Date.now() < end)
    await new Promise((done) => setTimeout(done, 20))
  }
}
