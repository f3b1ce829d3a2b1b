/**
 * What the operator has to see to, kept with what it is about: a slot, by its id, or the `opening`
 * of new ones. It goes with that, so that nothing keeps the gateway unready over what is gone
 * (contract §2, /readyz).
 */
export interface Faults {
  /**
   * One look at the subject. What is noted of it meanwhile takes the place, when the look is over,
   * of what the look before it noted; one that rejects has shown nothing, and changes nothing.
   */
  look<T>(about: string, work: () => Promise<T>): Promise<T>
  /**
   * Found by the look that is on: it is told for as long as each look finds it again. One sentence.
   */
  note(about: string, sentence: string): void
  /**
   * What a node said to the slot's transaction: it is told until the slot's newest transaction is
   * taken or gone, or something else is said.
   */
  refuse(about: string, sentence: string): void
  /**
   * The slot's transaction is seen in a pool or a block, or its nonce is used: what was refused
   * before does not matter any more.
   */
  taken(about: string): void
  /** All that was told of the subject. */
  drop(about: string): void
  all(): readonly string[]
}

/** In memory only: what is still the case is found again. */
export function createFaults(): Faults {
  const told = new Map<string, Set<string>>()
  const looking = new Map<string, Set<string>>()
  const refused = new Map<string, string>()
  return {
    async look(about, work) {
      looking.set(about, new Set())
      try {
        const result = await work()
        const found = looking.get(about)
        // Dropped meanwhile: what was noted after that is told already.
        if (found) told.set(about, found)
        return result
      } finally {
        looking.delete(about)
      }
    },
    note(about, sentence) {
      const found = looking.get(about) ?? told.get(about) ?? new Set()
      if (!looking.has(about)) told.set(about, found)
      found.add(sentence)
    },
    refuse: (about, sentence) => refused.set(about, sentence),
    taken: (about) => refused.delete(about),
    drop(about) {
      for (const sentences of [told, looking, refused]) sentences.delete(about)
    },
    all: () => [...refused.values(), ...[...told.values()].flatMap((sentences) => [...sentences])],
  }
}
