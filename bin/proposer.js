#!/usr/bin/env node
const { start } = require('../dist/main.js')

start(process).then((code) => {
  process.exitCode = code
})
