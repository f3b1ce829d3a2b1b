import { bundle } from '../../scripts/build.js'

export default async function setup(): Promise<void> {
  await bundle()
}
