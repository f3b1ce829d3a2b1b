/**
 * What the operator has to see to, by a slot's id or the opening of new ones; it goes with its
 * subject (contract §2, /readyz).
 */
export function createFaults() {
  const noted = new Map<string, Set<string>>()
  const looking = new Map<string, Set<string>>()
  const refused = new Map<string, string>()
  return {
    /**
     * What is noted during a look replaces what the look before it noted; one that rejects
     * changes
     * nothing.
     */
    async look<T>(about: string, work: () => Promise<T>): Promise<T> {
      looking.set(about, new Set())
      try {
        const result = await work()
        const found = looking.get(about)
        if (found) noted.set(about, found)
        return result
      } finally {
        looking.delete(about)
      }
    },
    note(about: string, sentence: string): void {
      const found = looking.get(about) ?? noted.get(about) ?? new Set()
      if (!looking.has(about)) noted.set(about, found)
      found.add(sentence)
    },
    /** What a node said to the slot's transaction: it stands until that is taken or gone. */
    refuse: (about: string, sentence: string) => void refused.set(about, sentence),
    taken: (about: string) => void refused.delete(about),
    drop(about: string): void {
      for (const sentences of [noted, looking, refused]) sentences.delete(about)
    },
    all: (): readonly string[] => [
      ...refused.values(),
      ...[...noted.values()].flatMap((sentences) => [...sentences]),
    ],
  }
}
