import { bundle } from '../../scripts/build.js'

/** Brings dist/ up to date with the sources before a test starts a process from it. */
export default async function setup(): Promise<void> {
  await bundle()
}
