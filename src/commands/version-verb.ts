/** `version`: what `--version` prints, also as a document (contract §9). */
import { version as node } from 'node:process'
import { programVersion as version } from '#protocol/version'
import { verb } from './terminal/verb.js'

export const versionCommand = verb({
  name: 'version',
  about: 'print the version',
  examples: ['version --json'],
  run: ({ output }) => output.show('version', { version, node }, [version]),
})
