/**
 * What the operator has to see to, with what it is about: a slot, by its id, or the opening of new
 * ones. It goes with that, so that nothing keeps the gateway unready over what is gone (contract
 * §2, /readyz). In memory only: what is still the case is found again.
 */
export interface Faults {
  /**
   * One look at the subject. What is noted meanwhile replaces, when the look is over, what the look
   * before it noted; one that rejects changes nothing.
   */
  look<T>(about: string, work: () => Promise<T>): Promise<T>
  /** A sentence that stands for as long as each look finds it again. */
  note(about: string, sentence: string): void
  /** What a node said to the slot's transaction: it stands until that is taken or gone. */
  refuse(about: string, sentence: string): void
  /** The slot's transaction is in a pool or a block, or its nonce is used. */
  taken(about: string): void
  /** Forgets the subject. */
  drop(about: string): void
  all(): readonly string[]
}

/** Without faults. */
export function createFaults(): Faults {
  const noted = new Map<string, Set<string>>()
  const looking = new Map<string, Set<string>>()
  const refused = new Map<string, string>()
  return {
    async look(about, work) {
      looking.set(about, new Set())
      try {
        const result = await work()
        const found = looking.get(about)
        // Dropped meanwhile: what was noted after that stands already.
        if (found) noted.set(about, found)
        return result
      } finally {
        looking.delete(about)
      }
    },
    note(about, sentence) {
      const found = looking.get(about) ?? noted.get(about) ?? new Set()
      if (!looking.has(about)) noted.set(about, found)
      found.add(sentence)
    },
    refuse: (about, sentence) => refused.set(about, sentence),
    taken: (about) => refused.delete(about),
    drop(about) {
      for (const sentences of [noted, looking, refused]) sentences.delete(about)
    },
    all: () => [...refused.values(), ...[...noted.values()].flatMap((sentences) => [...sentences])],
  }
}
