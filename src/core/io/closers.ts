export type Closers = ReturnType<typeof createClosers>

export function createClosers() {
  const closers: (() => unknown)[] = []
  return {
    add: (close: () => unknown) => void closers.push(close),
    async close() {
      for (const close of closers.splice(0).reverse()) await close()
    },
  }
}

export async function opening<T>(open: (closers: Closers) => Promise<T>): Promise<T> {
  const closers = createClosers()
  try {
    return await open(closers)
  } catch (error) {
    await closers.close()
    throw error
  }
}
