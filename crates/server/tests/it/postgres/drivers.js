// What programs in JavaScript do over PostgreSQL's protocol: node-postgres, alone, in a pool, and with its cursor.
// The arguments are the port and the folder where its packages are.
'use strict'

const assert = require('node:assert')
const { createRequire } = require('node:module')

const [port, folder] = process.argv.slice(2)
const installed = createRequire(`${folder}/`)
const { Client, Pool } = installed('pg')
const Cursor = installed('pg-cursor')

const where = { host: '127.0.0.1', port: Number(port), user: 'ann', database: 'plant' }
const first = new Date('2023-11-14T22:13:20.000Z')

async function alone() {
  const client = new Client({ ...where, application_name: 'test' })
  await client.connect()
  const plain = await client.query('SELECT time, id, speed, name, ok, n, laps, raw FROM cars ORDER BY time')
  assert.strictEqual(plain.command, 'SELECT')
  assert.strictEqual(plain.rowCount, 2)
  // Integers of 64 bits are text to it, lest digits are lost.
  assert.deepStrictEqual(plain.rows[0], {
    time: first, id: 'seen', speed: 1.5, name: 'x', ok: true, n: '4', laps: '3', raw: null,
  })
  assert.deepStrictEqual(plain.rows[1].raw, Buffer.from([0, 255]))
  // Values of all kinds that it knows; it says no types, and sends them as text.
  for (const [condition, value, count] of [
    ['time = $1', first, 1],
    ['time <= $1', new Date('2023-11-14T22:13:21.000Z'), 1],
    ['time = $1', '2023-11-14T22:13:20Z', 1],
    ['id = $1', 'seen', 1],
    ['speed > $1', 2, 1],
    ['speed = $1', '2.5', 1],
    ['n = $1', 4, 1],
    ['n = $1', 4n, 1],
    ['ok = $1', true, 1],
    ['raw = $1', Buffer.from([0, 255]), 1],
    ['id = ANY($1)', ['seen', 'other'], 2],
    ['id = $1', null, 0],
  ]) {
    const found = await client.query(`SELECT id FROM cars WHERE ${condition}`, [value])
    assert.strictEqual(found.rowCount, count, `${condition} with ${value}`)
  }
  const limited = await client.query('SELECT id FROM cars ORDER BY time LIMIT $1 OFFSET $2', [1, 1])
  assert.deepStrictEqual(limited.rows, [{ id: 'other' }])
  // A statement with a name is prepared once, and bound again.
  for (const [id, speed] of [['seen', 1.5], ['other', 2.5], ['seen', 1.5]]) {
    const named = { name: 'by-id', text: 'SELECT speed FROM cars WHERE id = $1', values: [id], rowMode: 'array' }
    const found = await client.query(named)
    assert.deepStrictEqual(found.rows, [[speed]])
    assert.strictEqual(found.fields[0].name, 'speed')
    assert.strictEqual(found.fields[0].dataTypeID, 701)
  }
  // Several statements in one text have several answers.
  const several = await client.query('SELECT 1 AS one; SELECT count(*) AS all FROM cars')
  assert.deepStrictEqual(several.map((answer) => answer.rows), [[{ one: '1' }], [{ all: '2' }]])
  await assert.rejects(client.query('SELECT spede FROM cars'), (error) => {
    assert.strictEqual(error.code, '42703')
    assert.strictEqual(error.severity, 'ERROR')
    assert.ok(error.hint)
    return true
  })
  await assert.rejects(client.query('SELECT $1::bigint', ['x']), /x/)
  await assert.rejects(client.query('SELEC 1'), { code: '42601' })
  // It goes on after a mistake.
  assert.deepStrictEqual((await client.query('SELECT 2.5::double precision AS v')).rows, [{ v: 2.5 }])
  await client.query("SET TIME ZONE 'Europe/Berlin'")
  const shown = await client.query('SELECT time FROM cars ORDER BY time LIMIT 1')
  assert.deepStrictEqual(shown.rows, [{ time: first }])
  await client.end()
}

async function writes() {
  const client = new Client(where)
  await client.connect()
  const insert = 'INSERT INTO written (time, id, v) VALUES ($1, $2, $3), ($4, $5, $6)'
  const later = new Date(first.getTime() + 1)
  const written = await client.query(insert, [first, 'node', 1.25, later, 'node', -2])
  assert.strictEqual(written.command, 'INSERT')
  assert.strictEqual(written.rowCount, 2)
  const back = await client.query("SELECT time, v FROM written WHERE id = 'node' ORDER BY time")
  assert.deepStrictEqual(back.rows, [{ time: first, v: 1.25 }, { time: later, v: -2 }])
  const returned = await client.query(
    "INSERT INTO written (time, id, v) VALUES ($1, 'node', 3) RETURNING time, v", [new Date(first.getTime() + 2)],
  )
  assert.deepStrictEqual(returned.rows.map((row) => row.v), [3])
  const made = await client.query('CREATE INDEX written_v ON written (v)')
  assert.strictEqual(made.command, 'CREATE')
  const deleted = await client.query("DELETE FROM written WHERE id = $1", ['node'])
  assert.strictEqual(deleted.rowCount, 3)
  await client.query('DROP INDEX written_v')
  await client.end()
}

async function pooled() {
  const pool = new Pool({ ...where, max: 4 })
  const asked = Array.from({ length: 40 }, (_, i) => pool.query('SELECT $1::bigint + 1 AS next', [i]))
  const answers = await Promise.all(asked)
  assert.deepStrictEqual(answers.map((answer) => Number(answer.rows[0].next)), answers.map((_, i) => i + 1))
  await pool.end()
}

async function inParts() {
  const client = new Client(where)
  await client.connect()
  const cursor = client.query(new Cursor('SELECT g FROM generate_series(1, $1::bigint) AS s(g)', [2500]))
  let count = 0
  let sum = 0
  for (;;) {
    const rows = await cursor.read(1000)
    if (rows.length === 0) break
    assert.ok(rows.length <= 1000)
    count += rows.length
    for (const row of rows) sum += Number(row.g)
  }
  await cursor.close()
  assert.deepStrictEqual([count, sum], [2500, (2500 * 2501) / 2])
  // One that is left before its end.
  const left = client.query(new Cursor('SELECT g FROM generate_series(1, 100000) AS s(g)'))
  assert.strictEqual((await left.read(10)).length, 10)
  await left.close()
  assert.deepStrictEqual((await client.query('SELECT 1 AS one')).rowCount, 1)
  await client.end()
}

async function main() {
  await alone()
  await writes()
  await pooled()
  await inParts()
  console.log('done')
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
