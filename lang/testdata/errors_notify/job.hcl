variable "token" {
  type      = string
  default   = "hunter2hunter2"
  sensitive = true
}

job "a" {
  role "worker" {
    command = ["true"]
  }
}

notify "unknown_event" {
  on  = ["failled", "failed", "failed"]
  url = "https://example.com/hook"
}

notify "nothing" {
  on  = []
  url = "https://example.com/hook"
}

notify "no_event" {
  url = "https://example.com/hook"
}

notify "recovers_from_nothing" {
  on  = ["succeeded", "recovered"]
  url = "https://example.com/hook"
}

notify "both" {
  on      = ["failed"]
  url     = "https://example.com/hook"
  command = ["./page.sh"]
}

notify "neither" {
  on = ["failed"]
}

notify "duration" {
  on  = ["failed"]
  for = "5 minutes"
  url = "https://example.com/hook"
}

notify "negative" {
  on  = ["failed"]
  for = "-5m"
  url = "https://example.com/hook"
}

notify "scheme" {
  on  = ["failed"]
  url = "ftp://example.com/${var.token}"
}

notify "host" {
  on  = ["failed"]
  url = "https:///hook"
}

notify "no_command" {
  on      = ["failed"]
  command = []
}

notify "header" {
  on      = ["failed"]
  url     = "https://example.com/hook"
  headers = { "X Token" = var.token }
}

notify "header_of_command" {
  on      = ["failed"]
  command = ["./page.sh"]
  headers = { X-Token = var.token }
}

notify "placeholder" {
  on   = ["failed"]
  url  = "https://example.com/hook"
  text = "{jobs}: {message}"
}

notify "secret_text" {
  on   = ["failed"]
  url  = "https://example.com/hook"
  text = var.token
}

notify "jobs" {
  on   = ["failed"]
  url  = "https://example.com/hook"
  jobs = [job.b, "job.a", job.a.worker, module.m]
}

notify "all" {
  on   = ["failed"]
  url  = "https://example.com/hook"
  jobs = job.a
}

notify "all" {
  on     = ["failed"]
  url    = "https://example.com/hook"
  method = "GET"
}
