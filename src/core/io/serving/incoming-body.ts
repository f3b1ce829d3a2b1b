/** Robustness §4, R17. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { BodyError, type BodyLimits, joined } from '#protocol/call'

export function announcesBody(incoming: IncomingMessage) {
  return (
    incoming.headers['transfer-encoding'] !== undefined ||
    Number(incoming.headers['content-length'] ?? 0) > 0
  )
}

/** `100 Continue` comes after 413 and 429 have been decided. */
export function readIncoming(
  incoming: IncomingMessage,
  response: ServerResponse,
  limits: BodyLimits,
): Promise<Uint8Array> {
  if (!announcesBody(incoming)) return Promise.resolve(new Uint8Array())
  if (Number(incoming.headers['content-length'] ?? 0) > limits.limitBytes)
    return Promise.reject(new BodyError('too_large'))
  if (incoming.headers.expect !== undefined) response.writeContinue()
  return new Promise((resolve, reject) => {
    const parts: Uint8Array[] = []
    let length = 0
    // The listeners stay, the bytes must not: an idle connection keeps its last message.
    let settled = false
    const refuse = (kind: BodyError['kind']) => {
      if (settled) return
      settled = true
      parts.length = 0
      incoming.pause()
      reject(new BodyError(kind))
    }
    incoming
      .on('data', (part: Uint8Array) => {
        if (settled) return
        length += part.length
        if (length > limits.limitBytes) refuse('too_large')
        else if (!limits.reserve(part.length)) refuse('no_room')
        else parts.push(part)
      })
      .on('end', () => {
        if (settled) return
        settled = true
        resolve(joined(parts.splice(0), length))
      })
    const onLost = () => refuse('lost')
    incoming.on('error', onLost).on('close', onLost)
  })
}

/** A larger rest is not worth the connection. */
const keptRestBytes = 64 * 1024
const lingerBytes = 4 * 1024 * 1024
const lingerMs = 2_000

export function restIsLarge(incoming: IncomingMessage) {
  if (!announcesBody(incoming) || incoming.complete) return false
  const length = incoming.headers['content-length']
  return (
    length === undefined || incoming.headers.expect !== undefined || Number(length) > keptRestBytes
  )
}

/**
 * A reset could overtake the answer: a refusal would be taken for an unknown outcome (robustness
 * §6).
 */
export function linger(incoming: IncomingMessage): Promise<void> {
  return new Promise((resolve) => {
    let left = lingerBytes
    const done = () => {
      clearTimeout(timer)
      incoming.off('data', onData).off('end', done).off('close', done).off('error', done)
      incoming.on('error', () => undefined)
      resolve()
    }
    const onData = (part: Uint8Array) => {
      left -= part.length
      if (left < 0) done()
    }
    const timer = setTimeout(done, lingerMs)
    incoming.on('data', onData).on('end', done).on('close', done).on('error', done).resume()
  })
}
