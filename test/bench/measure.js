import { open, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

export const p99 = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length * 0.99)]

/**
 * Two figures after the point below 10, one below 100, none above: what a median of a few rounds
 * can carry.
 */
export function figure(value) {
  return value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)
}

/**
 * Runs each task `rounds` times in turn (a, b, a, b, …), so that a machine that slows down slows
 * all of them; the medians in the order of the tasks. A task returns its own figure.
 */
export async function inTurn(rounds, tasks) {
  const values = tasks.map(() => [])
  for (let round = 0; round < rounds; round += 1) {
    for (const [index, task] of tasks.entries()) values[index].push(await task(round))
  }
  return values.map(median)
}

export function microsecondsPerCall(work, milliseconds) {
  let calls = 0
  const start = performance.now()
  let passed = 0
  while (passed < milliseconds) {
    for (let i = 0; i < 8; i += 1) work(calls + i)
    calls += 8
    passed = performance.now() - start
  }
  return (passed * 1000) / calls
}

export async function syncMilliseconds(folder) {
  const path = join(folder, 'sync-probe')
  const handle = await open(path, 'a', 0o600)
  const times = []
  const bytes = Buffer.alloc(1024, 120)
  try {
    for (let i = 0; i < 50; i += 1) {
      const start = performance.now()
      await handle.write(bytes)
      await handle.datasync()
      times.push(performance.now() - start)
    }
  } finally {
    await handle.close()
    await rm(path)
  }
  return median(times)
}

export async function cpuSecondsOf(pid) {
  const fields = (await readFile(`/proc/${pid}/stat`, 'utf8')).replace(/^.*\) /, '').split(' ')
  return (Number(fields[11]) + Number(fields[12])) / 100
}

export async function memoryOf(pid) {
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  const of = (name) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1]) / 1024
  return { peak: of('VmHWM'), now: of('VmRSS') }
}
