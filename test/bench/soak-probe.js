// node --import soak-probe.js …: every five seconds writes what only the process itself knows of
// its memory and its event loop as JSON to the file that SOAK_PROBE_FILE names.
// `heap_after_collection_bytes` is the heap right after the last full collection: what is really
// held.
import { renameSync, writeFileSync } from 'node:fs'
import { constants, monitorEventLoopDelay, PerformanceObserver } from 'node:perf_hooks'

const file = process.env.SOAK_PROBE_FILE
const delay = monitorEventLoopDelay({ resolution: 10 })
delay.enable()
let heapAfterCollection = null
let collections = 0
new PerformanceObserver((list) => {
  if (!list.getEntries().some(({ detail }) => detail?.kind === constants.NODE_PERFORMANCE_GC_MAJOR))
    return
  collections += 1
  heapAfterCollection = process.memoryUsage().heapUsed
}).observe({ entryTypes: ['gc'] })

const milliseconds = (nanoseconds) => Math.round(nanoseconds / 10_000) / 100
const write = () => {
  const { heapUsed, heapTotal, external, arrayBuffers } = process.memoryUsage()
  const { user, system } = process.cpuUsage()
  const told = {
    heap_used_bytes: heapUsed,
    heap_total_bytes: heapTotal,
    heap_after_collection_bytes: heapAfterCollection,
    collections,
    external_bytes: external,
    array_buffers_bytes: arrayBuffers,
    cpu_seconds: (user + system) / 1e6,
    loop_p50_ms: milliseconds(delay.percentile(50)),
    loop_p99_ms: milliseconds(delay.percentile(99)),
    loop_max_ms: milliseconds(delay.max),
  }
  delay.reset()
  // By rename, so that whoever reads never sees half of it.
  writeFileSync(`${file}.new`, JSON.stringify(told))
  renameSync(`${file}.new`, file)
}
setInterval(write, 5_000).unref()
