/**
 * Server-sent events, while anybody reads: the figures once a second, so that a hung gateway shows,
 * and of the lists what has changed. Readers are bounded, none is waited for (R17, robustness §5).
 */
import type { ServerResponse } from 'node:http'
import { ProposerError } from '#protocol/errors'

/** Plain JSON data without secrets (R5). A ProposerError: it cannot be read now. */
export interface PageSource {
  figures(): object
  /** The newest first; the same array as before where nothing has changed. */
  candidates(): Promise<readonly object[]>
  failures(): Promise<object>
  candidate(id: string): Promise<object | undefined>
}

export type EventReader = Pick<
  ServerResponse,
  'write' | 'writableLength' | 'end' | 'destroy' | 'once'
>

export type PageEvents = ReturnType<typeof createPageEvents>

export const mostReaders = 8
/** A reader that has left so much lying reads nothing any more. */
const unreadBytes = 256 * 1024

/** No timer runs while nobody reads. */
export function createPageEvents(source: PageSource, everyMs = 1_000) {
  /** Each with what it was told last, by the name of the event. */
  const readers = new Map<EventReader, Map<string, string>>()
  let timer: ReturnType<typeof setInterval> | undefined
  let isReading = false

  const write = (reader: EventReader, text: string) => {
    if (reader.writableLength > unreadBytes) reader.destroy()
    else reader.write(text)
  }
  const tell = (event: 'figures' | 'failures' | 'candidates', told: object) => {
    const text = `event: ${event}\ndata: ${JSON.stringify(told)}\n\n`
    for (const [reader, sent] of readers) {
      if (event !== 'figures' && sent.get(event) === text) continue
      sent.set(event, text)
      write(reader, text)
    }
  }
  const look = async () => {
    tell('figures', source.figures())
    // A disk that takes longer than a look is not asked twice.
    if (isReading) return
    isReading = true
    try {
      const [candidates, failures] = await Promise.all([source.candidates(), source.failures()])
      tell('failures', failures)
      tell('candidates', candidates)
    } catch (error) {
      // The store cannot be read now: figures say so, and the lists stay as they were reported.
      if (!(error instanceof ProposerError)) throw error
    } finally {
      isReading = false
    }
  }

  return {
    /** False where there are as many readers as may be: nothing was written then. */
    add(reader: EventReader, begin: () => void): boolean {
      if (readers.size >= mostReaders) return false
      begin()
      reader.once('close', () => {
        readers.delete(reader)
        if (readers.size === 0) clearInterval(timer)
      })
      readers.set(reader, new Map())
      write(reader, 'retry: 2000\n\n')
      if (readers.size === 1) timer = setInterval(() => void look(), everyMs).unref()
      void look()
      return true
    },
    get readers() {
      return readers.size
    },
    end() {
      for (const reader of readers.keys()) reader.end()
    },
  }
}
