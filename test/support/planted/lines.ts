export interface PlantedLine {
  readonly project: string
  readonly title: string | undefined
  readonly passed: boolean
  readonly errors: readonly { readonly name: string; readonly message: string }[]
}

export const soundProject = 'sound'
