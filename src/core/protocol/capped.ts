/** Bodies of others, read as far as is allowed (R17). */

/**
 * The text of a body in UTF-8, or `undefined` where it is longer than `limitBytes`: its stream is
 * cancelled then. Rejects as the stream does.
 */
export async function readCapped(
  body: AsyncIterable<Uint8Array> | null,
  limitBytes: number,
): Promise<string | undefined> {
  const decoder = new TextDecoder()
  let text = ''
  let size = 0
  for await (const chunk of body ?? []) {
    size += chunk.byteLength
    // Leaving the loop cancels the stream.
    if (size > limitBytes) return undefined
    text += decoder.decode(chunk, { stream: true })
  }
  return text + decoder.decode()
}

/** The JSON value of a text; `undefined`, which no schema takes, where it is none. */
export function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
