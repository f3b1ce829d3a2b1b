import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'

const isMissing = (error) => error.code === 'ENOENT'

/**
 * Bytes of all files below a folder. A file that a compaction takes away meanwhile counts nothing.
 */
async function bytesBelow(folder) {
  let sum = 0
  for (const entry of await readdir(folder, { recursive: true })) {
    try {
      const found = await stat(join(folder, entry))
      if (found.isFile()) sum += found.size
    } catch (error) {
      if (!isMissing(error)) throw error
    }
  }
  return sum
}

/** Samples of a metric by one of its labels. */
function metric(text, name, label) {
  const sums = {}
  for (const [, labels, value] of text.matchAll(new RegExp(`^${name}\\{(.*)\\} (\\S+)$`, 'gm'))) {
    const key = new RegExp(`${label}="([^"]*)"`).exec(labels)?.[1] ?? ''
    sums[key] = (sums[key] ?? 0) + Number(value)
  }
  return sums
}

/** What a process holds, as Linux tells it. Rejects where the process has gone. */
async function held(pid) {
  const [status, fds] = await Promise.all([
    readFile(`/proc/${pid}/status`, 'utf8'),
    readdir(`/proc/${pid}/fd`),
  ])
  const field = (name) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1])
  return { rss_bytes: field('VmRSS') * 1024, threads: field('Threads'), fds: fds.length }
}

/** One sample of the gateway: its process, its store, its own figures. */
export async function sample({ pid, store, probeFile, call, adminUrl }) {
  const [process, store_bytes, metrics, probe] = await Promise.all([
    held(pid),
    bytesBelow(store),
    call('/metrics', undefined, { base: adminUrl }),
    // It writes first after five seconds.
    readFile(probeFile, 'utf8').catch((error) => {
      if (isMissing(error)) return '{}'
      throw error
    }),
  ])
  return {
    ...process,
    store_bytes,
    ...JSON.parse(probe),
    queue: metric(metrics.body, 'proposer_queue_candidates', 'stage'),
    calls: metric(metrics.body, 'proposer_http_requests_total', 'status'),
    open_slots: Number(/^proposer_executor_open_slots (\S+)$/m.exec(metrics.body)?.[1]),
    budget_clients: Number(/^proposer_budget_clients (\S+)$/m.exec(metrics.body)?.[1]),
    questions: metric(metrics.body, 'proposer_view_questions', 'state'),
    node_requests: metric(metrics.body, 'proposer_rpc_node_requests_total', 'outcome'),
    ready: Number(/^proposer_ready (\S+)$/m.exec(metrics.body)?.[1]),
  }
}
