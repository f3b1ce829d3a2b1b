/** A JSON file of the home folder that can be made again: its damage is a note, no error. */
import type * as z from 'zod/mini'
import type { Files } from '#ports'
import { jsonOf } from '#protocol/capped'
import { joinPath, makeDurableDir, publishText } from './durable.js'
import { errorCode } from './failures.js'

export interface KeptPlace {
  readonly files: Files
  readonly home: string
  readonly onNote?: ((text: string) => void) | undefined
}

/** Its folder in the home, and its own. */
export type KeptName = readonly [folder: string, name: string]

export async function readKeptFile<T>(
  { files, home, onNote }: KeptPlace,
  [folder, name]: KeptName,
  shape: z.ZodMiniType<T>,
  then: string,
) {
  const path = joinPath(joinPath(home, folder), name)
  if (!(await files.exists(path))) return undefined
  const { data } = shape.safeParse(jsonOf(new TextDecoder().decode(await files.read(path))))
  if (data === undefined) onNote?.(`${path} is damaged: ${then}`)
  return data
}

export async function writeKeptFile(
  { files, home, onNote }: KeptPlace,
  [folderName, name]: KeptName,
  json: object,
  then: string,
) {
  const folder = joinPath(home, folderName)
  try {
    await makeDurableDir(files, folder)
    await publishText(files, folder, name, JSON.stringify(json))
  } catch (error) {
    onNote?.(`${folder} cannot be written (${errorCode(error) ?? 'failed'}): ${then}`)
  }
}
