/** `version`: what `--version` prints, also as a document (contract §9). */
import { version as nodeVersion } from 'node:process'
import { Command } from 'commander'
import { programVersion } from '../core/protocol/version.js'
import type { Context } from './terminal/context.js'

export const versionCommand = (context: Context): Command =>
  new Command('version')
    .description('print the version')
    .addHelpText('after', '\nExample:\n  proposer version --json')
    .action(() => {
      context.output.result(
        'version',
        { version: programVersion, node: nodeVersion },
        ({ version }) => version,
      )
    })
