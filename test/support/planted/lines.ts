/** What a run with planted bugs tells of each test, one line of JSON. */
export interface PlantedLine {
  /** Name of the bug, or `soundProject`. */
  readonly project: string
  /** Absent for the fault of a whole file, which could not be loaded. */
  readonly title: string | undefined
  readonly passed: boolean
  readonly errors: readonly { readonly name: string; readonly message: string }[]
}

/** The project without a bug. */
export const soundProject = 'sound'
