# Vault: its agent logs in, and writes one file for each key: vault agent -config=config/secrets/vault-agent.hcl
# It runs beside the gateway, as the same user. See docs/keys.md#secrets.

vault {
  address = "https://vault.example.com:8200"
}

auto_auth {
  method "approle" {
    config = {
      role_id_file_path                   = "/etc/vault-agent/role-id"
      secret_id_file_path                 = "/etc/vault-agent/secret-id"
      remove_secret_id_file_after_reading = false
    }
  }
}

template_config {
  static_secret_render_interval = "1m"
  exit_on_retry_failure         = false
}

template {
  contents             = "{{ with secret \"secret/data/holeshot\" }}{{ .Data.data.groq }}{{ end }}"
  destination          = "/run/holeshot/secrets/groq"
  perms                = "0400"
  error_on_missing_key = true
}

template {
  contents             = "{{ with secret \"secret/data/holeshot\" }}{{ .Data.data.openai }}{{ end }}"
  destination          = "/run/holeshot/secrets/openai"
  perms                = "0400"
  error_on_missing_key = true
}
