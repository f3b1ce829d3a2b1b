// The load of row 18: so many keep-alive connections, each of which asks for one path in a closed loop for some seconds.
// Sockets as they are, so that the load costs less than what it measures. A connection that is refused or ends is opened
// again: after the Retry-After of its answer where `patient`, at once where not.
import { connect } from 'node:net'

const againMs = 20

function run({ url, path, connections, warmUpMs, measureMs, patient }) {
  const { hostname, port, host } = new URL(url)
  const request = Buffer.from(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`)
  const counts = { answered: 0, refused: 0, cut: 0 }
  const waits = []
  const open = new Set()
  let isMeasured = false
  let isOver = false

  const again = (after) => {
    if (!isOver) setTimeout(start, after)
  }
  function start() {
    if (isOver) return
    const socket = connect({ host: hostname, port })
    open.add(socket)
    let text = ''
    let sentMs = 0
    let after = againMs
    const ask = () => {
      sentMs = performance.now()
      socket.write(request)
    }
    const take = () => {
      const head = text.indexOf('\r\n\r\n')
      if (head < 0) return
      const length = Number(/content-length: (\d+)/i.exec(text)?.[1] ?? 0)
      if (text.length < head + 4 + length) return
      const status = Number(text.slice(9, 12))
      const seconds = Number(/retry-after: (\d+)/i.exec(text)?.[1] ?? 0)
      const isLast = /connection: close/i.test(text.slice(0, head))
      text = text.slice(head + 4 + length)
      if (isMeasured && status >= 200 && status < 300) {
        counts.answered += 1
        waits.push(performance.now() - sentMs)
      } else if (isMeasured) counts.refused += 1
      const pause = status === 503 && patient ? seconds * 1000 : 0
      if (isLast) {
        after = pause
        socket.end()
      } else if (pause > 0) setTimeout(ask, pause)
      else ask()
    }
    socket.setNoDelay(true).setEncoding('latin1')
    socket.on('connect', ask).on('data', (part) => {
      text += part
      take()
    })
    socket.on('error', () => {
      if (isMeasured) counts.cut += 1
    })
    socket.on('close', () => {
      open.delete(socket)
      again(after)
    })
  }

  return new Promise((resolve) => {
    // Not all in one step: the queue of a listening socket is not what is measured.
    let begun = 0
    const opening = setInterval(() => {
      for (let n = 0; n < 100 && begun < connections; n += 1, begun += 1) start()
      if (begun === connections) clearInterval(opening)
    }, 10)
    setTimeout(() => {
      isMeasured = true
      const fromMs = performance.now()
      setTimeout(() => {
        isMeasured = false
        isOver = true
        const seconds = (performance.now() - fromMs) / 1000
        clearInterval(opening)
        for (const socket of open) socket.destroy()
        waits.sort((a, b) => a - b)
        const p99 = waits[Math.floor(waits.length * 0.99)] ?? Number.NaN
        resolve({ ...counts, perSecond: counts.answered / seconds, p99 })
      }, measureMs)
    }, warmUpMs)
  })
}

process.on('message', (job) => {
  void run(job).then((answer) => process.send({ answer }))
})
process.on('disconnect', () => process.exit())
