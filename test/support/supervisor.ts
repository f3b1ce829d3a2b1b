/** The supervisors of deploy/: they start a gateway again as their own files say, without waiting. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseYaml } from '@redocly/openapi-core'
import type { Ended, Running } from './processes.js'
import { root } from './readme.js'

type RestartRule = (ended: Ended, failures: number) => boolean

const textOf = (path: string) => readFileSync(join(root, 'deploy', path), 'utf8')

function unitRule(): RestartRule {
  const setting = (name: string) =>
    new RegExp(`^${name}=(.*)$`, 'm').exec(textOf('systemd/proposer.service'))?.[1]
  if (setting('Restart') !== 'on-failure') throw new Error(`unknown: ${setting('Restart')}`)
  const prevented = (setting('RestartPreventExitStatus') ?? '').split(' ').map(Number)
  return ({ code, signal }) =>
    code === null ? signal !== null : code !== 0 && !prevented.includes(code)
}

function composeRule(): RestartRule {
  const { services } = parseYaml(textOf('compose.yaml')) as {
    readonly services: Readonly<Record<string, { readonly restart: string }>>
  }
  const [, most] = /^on-failure(?::(\d+))?$/.exec(services['gateway-1']?.restart ?? '') ?? []
  return ({ code }, failures) => code !== 0 && failures < Number(most ?? Number.POSITIVE_INFINITY)
}

export const restartRules = { systemd: unitRule, compose: composeRule } as const

export async function supervise(
  rule: RestartRule,
  start: () => Running,
  running?: Running,
): Promise<{ readonly ends: readonly Ended[]; readonly serving: Running | undefined }> {
  const ends: Ended[] = []
  for (let process = running ?? start(); ; process = start()) {
    const isUp =
      process === running
        ? process.ended.then(() => false)
        : process.line().then(
            () => true,
            () => false,
          )
    if (await isUp) return { ends, serving: process }
    const ended = await process.ended
    ends.push(ended)
    if (!rule(ended, ends.length)) return { ends, serving: undefined }
  }
}
