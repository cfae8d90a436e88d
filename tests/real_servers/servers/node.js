// A reverse proxy on node's own servers: http, https, http2 and http2 over TLS, by the file of settings it is given.
'use strict'
const fs = require('node:fs')
const http = require('node:http')
const http2 = require('node:http2')
const https = require('node:https')

const settings = JSON.parse(fs.readFileSync(process.argv[2]))
const tls = { key: fs.readFileSync(settings.certificate), cert: fs.readFileSync(settings.certificate) }
const agent = new http.Agent({ keepAlive: true })
const own = new Set(['connection', 'keep-alive', 'host', 'transfer-encoding', 'upgrade', 'proxy-connection'])

function passedOn (headers) {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !own.has(name) && name[0] !== ':'))
}

function handle (request, response) {
  const onward = http.request(
    { host: '127.0.0.1', port: settings.application, method: request.method, path: request.url, headers: passedOn(request.headers), agent },
    (answer) => {
      if (response.destroyed) return
      response.writeHead(answer.statusCode, passedOn(answer.headers))
      answer.pipe(response)
      answer.on('error', () => (response.stream || response).destroy())
    }
  )
  onward.on('error', () => (response.stream || response).destroy())
  request.on('error', () => {})
  response.on('error', () => {})
  response.on('close', () => onward.destroy())
  request.pipe(onward)
}

function limited1 (server) {
  if (settings.requests) server.maxRequestsPerSocket = settings.requests
  server.keepAliveTimeout = (settings.idle || 300) * 1000
  return server
}

function limited2 (server) {
  server.on('session', (session) => {
    let count = 0
    session.on('error', () => {})
    session.on('stream', () => { if (++count === settings.requests) session.close() })
    if (settings.idle) session.setTimeout(settings.idle * 1000, () => session.close())
  })
  return server
}

limited1(http.createServer(handle)).listen(settings.http1, '127.0.0.1')
limited1(https.createServer(tls, handle)).listen(settings.http1Tls, '127.0.0.1')
limited2(http2.createServer(handle)).listen(settings.http2, '127.0.0.1')
limited2(http2.createSecureServer({ ...tls, allowHTTP1: true }, handle)).listen(settings.http2Tls, '127.0.0.1')
