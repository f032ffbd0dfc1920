// Every call of E2B's JavaScript SDK. Run with E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL set, and
// the folder of node_modules as its argument; it ends with 0 if all is well.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'

const require = createRequire(`${process.argv[2]}/`)
const {
  AuthenticationError, CommandExitError, FileNotFoundError, InvalidArgumentError, NotFoundError, Sandbox,
  SandboxNotFoundError, TimeoutError,
} = require('e2b')

const sandbox = await Sandbox.create({ timeoutMs: 120_000, metadata: { a: 'b c' }, envs: { COLOUR: 'red' } })
try {
  await commands()
  await files()
  await terminal()
  await control()
} finally {
  assert.equal(await Sandbox.kill(sandbox.sandboxId), true)
}
assert.equal(await sandbox.isRunning(), false)
await assert.rejects(Sandbox.connect(sandbox.sandboxId), isA(SandboxNotFoundError, NotFoundError))
await assert.rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }), isA(AuthenticationError))

async function commands() {
  const pieces = []
  const done = await sandbox.commands.run('echo out; echo err >&2; echo $COLOUR', { onStdout: (text) => pieces.push(text) })
  assert.deepEqual([done.stdout, done.stderr, done.exitCode], ['out\nred\n', 'err\n', 0])
  assert.equal(pieces.join(''), done.stdout)
  await assert.rejects(sandbox.commands.run('exit 3'), (error) => error instanceof CommandExitError && error.exitCode === 3)
  await assert.rejects(sandbox.commands.run('sleep 30', { timeoutMs: 500 }), isA(TimeoutError))
  const handle = await sandbox.commands.run('cat; echo end', { background: true, stdin: true })
  await sandbox.commands.sendStdin(handle.pid, 'one\n')
  assert.ok((await sandbox.commands.list()).some((each) => each.pid === handle.pid))
  const again = await sandbox.commands.connect(handle.pid)
  await sandbox.commands.closeStdin(handle.pid)
  assert.match((await again.wait()).stdout, /end\n$/)
  const sleeping = await sandbox.commands.run('sleep 100', { background: true })
  assert.equal(await sleeping.kill(), true)
  assert.equal(await sandbox.commands.kill(99_999_999), false)
}

async function files() {
  const written = await sandbox.files.write('deep/file.txt', 'héllo')
  assert.equal(written.path, '/home/user/deep/file.txt')
  assert.equal(await sandbox.files.read('deep/file.txt'), 'héllo')
  const content = new Uint8Array(1_000_000).map((_, at) => at % 256)
  await sandbox.files.write('binary', content.buffer)
  assert.deepEqual(await sandbox.files.read('binary', { format: 'bytes' }), content)
  await sandbox.files.write([{ path: 'a', data: '1' }, { path: 'b', data: '2' }])
  assert.deepEqual((await sandbox.files.list('deep')).map((each) => each.name), ['file.txt'])
  assert.equal(await sandbox.files.makeDir('made'), true)
  assert.equal(await sandbox.files.makeDir('made'), false)
  assert.equal((await sandbox.files.getInfo('b')).size, 1)
  assert.equal((await sandbox.files.rename('a', 'c')).path, '/home/user/c')
  assert.equal(await sandbox.files.exists('a'), false)
  await sandbox.files.remove('c')
  await assert.rejects(sandbox.files.read('missing'), isA(FileNotFoundError ?? NotFoundError, NotFoundError))
  await assert.rejects(sandbox.files.list('b'), isA(InvalidArgumentError))
  const seen = []
  const watch = await sandbox.files.watchDir('made', (event) => seen.push(event.type))
  await sandbox.files.write('made/new', 'x')
  await until(() => seen.length >= 3)
  assert.deepEqual(seen, ['create', 'chmod', 'write'])
  await watch.stop()
  assert.deepEqual((await sandbox.files.write('noted', 'x', { metadata: { author: 'me' } })).metadata, { author: 'me' })
  const link = await sandbox.downloadUrl('b', { useSignatureExpiration: 60 })
  assert.equal(await (await fetch(link)).text(), '2')
  assert.equal((await fetch(link.replace('path=b', 'path=binary'))).status, 401)
  const form = new FormData()
  form.append('file', new Blob(['sent']), 'up')
  assert.equal((await fetch(await sandbox.uploadUrl('up'), { method: 'POST', body: form })).status, 200)
  assert.equal(await sandbox.files.read('up'), 'sent')
}

async function terminal() {
  let shown = ''
  const opened = await sandbox.pty.create({ cols: 80, rows: 24, onData: (data) => { shown += Buffer.from(data) } })
  await sandbox.pty.resize(opened.pid, { cols: 100, rows: 30 })
  await sandbox.pty.sendInput(opened.pid, new TextEncoder().encode('echo $((6*7)); stty size; exit\n'))
  await opened.wait()
  assert.match(shown, /42/)
  assert.match(shown, /30 100/)
}

async function control() {
  const info = await sandbox.getInfo()
  assert.deepEqual([info.metadata, info.state], [{ a: 'b c' }, 'running'])
  await sandbox.setTimeout(600_000)
  assert.ok((await sandbox.getInfo()).endAt > info.endAt)
  const listed = await Sandbox.list({ query: { metadata: { a: 'b c' } } }).nextItems()
  assert.deepEqual(listed.map((each) => each.sandboxId), [sandbox.sandboxId])
  assert.ok((await sandbox.getMetrics()).length > 0)
  const [fork] = await sandbox.fork({ timeoutMs: 60_000 })
  assert.equal(await fork.files.read('b'), '2')
  await fork.kill()
  const { snapshotId } = await sandbox.createSnapshot()
  const copy = await Sandbox.create(snapshotId)
  assert.equal(await copy.files.read('b'), '2')
  await copy.kill()
  assert.equal(await Sandbox.deleteSnapshot(snapshotId), true)
  assert.equal(await sandbox.pause(), true)
  const resumed = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 100_000 })
  assert.equal(await resumed.files.read('b'), '2')
  assert.equal((await resumed.commands.run('echo $COLOUR')).stdout, 'red\n')
}

function isA(...kinds) {
  return (error) => kinds.some((kind) => error instanceof kind)
}

async function until(answers) {
  for (const end = Date.now() + 20_000; !answers(); ) {
    assert.ok(Date.now() < end)
    await new Promise((done) => setTimeout(done, 20))
  }
}
