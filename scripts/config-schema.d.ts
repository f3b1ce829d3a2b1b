import type * as zod from 'zod'

/** The JSON Schema of gateway.json as the text of a file. */
export function configSchemaText(z: typeof zod, configFile: zod.ZodType): string
