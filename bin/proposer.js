#!/usr/bin/env node
import { start } from '../dist/main.js'

process.exitCode = await start(process)
