{{/* What the schema cannot say: values that only together make no deployment. */}}
{{- define "forwarder.checks" -}}
{{- $v := .Values }}
{{- if not $v.kafka.bootstrapServers }}
{{- fail "kafka.bootstrapServers is not set: where the brokers are, such as kafka-bootstrap.kafka.svc:9093" }}
{{- end }}
{{- if not $v.database.host }}
{{- fail "database.host is not set: where PostgreSQL is, such as postgres.databases.svc" }}
{{- end }}
{{- if not $v.allowPlaintext }}
{{- if not (hasSuffix "SSL" $v.kafka.securityProtocol) }}
{{- fail (printf "kafka.securityProtocol is %s: guests' data would cross the network in plaintext. Set SASL_SSL or SSL, or allowPlaintext: true where the network is private" $v.kafka.securityProtocol) }}
{{- end }}
{{- if not (has $v.database.sslmode (list "require" "verify-ca" "verify-full")) }}
{{- fail (printf "database.sslmode is %s: guests' data may cross the network in plaintext. Set verify-full, or allowPlaintext: true where the network is private" $v.database.sslmode) }}
{{- end }}
{{- end }}
{{- if and (eq $v.database.sslmode "verify-ca") (not $v.database.ca.secret) }}
{{- fail "database.sslmode is verify-ca, which any certificate of a public authority would pass: set database.ca, or verify-full" }}
{{- end }}
{{- if hasPrefix "SASL" $v.kafka.securityProtocol }}
{{- if eq $v.kafka.mechanism "OAUTHBEARER" }}
{{- if not (and $v.kafka.oauth.tokenUrl $v.kafka.oauth.clientId $v.kafka.oauth.clientSecret.secret) }}
{{- fail "kafka.mechanism is OAUTHBEARER: kafka.oauth.tokenUrl, clientId and clientSecret.secret must be set" }}
{{- end }}
{{- else if not (and $v.kafka.username $v.kafka.password.secret) }}
{{- fail (printf "kafka.mechanism is %s: kafka.username and kafka.password.secret must be set" $v.kafka.mechanism) }}
{{- end }}
{{- end }}
{{- if $v.database.createUsers.enabled }}
{{- range $stage, $account := $v.database.users }}
{{- if $account.user }}
{{- fail (printf "database.users.%s.user is set, and database.createUsers makes users with names of its own: leave one of them out" $stage) }}
{{- end }}
{{- end }}
{{- end }}
{{- $known := .Files.Lines "files/settings.txt" }}
{{- $pods := dict "" $v }}
{{- range list "ingress" "worker" "query" "notifier" "housekeeping" "console" "operator" }}
{{- $_ := set $pods (printf "%s." .) (get $v .) }}
{{- end }}
{{- range $where, $values := $pods }}
{{- range $name, $_ := default dict $values.settings }}
{{- if not (has $name $known) }}
{{- fail (printf "%ssettings.%s: no such setting for this place. Secrets, and what the chart has a value for, are set there (values.yaml); all others are in docs/reference/settings.md" $where $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- range list "worker" "notifier" }}
{{- $scale := (get $v .).autoscaling }}
{{- if $scale.enabled }}
{{- if not $v.keda.prometheus }}
{{- fail (printf "%s.autoscaling is enabled: set keda.prometheus, where Prometheus is asked for the lag, such as http://prometheus.monitoring.svc:9090" .) }}
{{- end }}
{{- end }}
{{- $most := ternary $scale.max (get $v .).replicas $scale.enabled }}
{{- if gt (int $most) (int $v.kafka.partitions) }}
{{- fail (printf "%s: %d pods for %d partitions, and there is no use for more pods than partitions: raise kafka.partitions, or have fewer" . (int $most) (int $v.kafka.partitions)) }}
{{- end }}
{{- end }}
{{- range list "ingress" "worker" "query" "notifier" }}
{{- $scale := (get $v .).autoscaling }}
{{- if gt (int $scale.min) (int $scale.max) }}
{{- fail (printf "%s.autoscaling: min is above max" .) }}
{{- end }}
{{- end }}
{{- if and $v.proxy.enabled $v.httpRoute.enabled }}
{{- fail "proxy and httpRoute are both enabled: choose the one that callers come in by" }}
{{- end }}
{{- if and $v.proxy.enabled (not $v.proxy.tls.secret) }}
{{- fail "proxy.tls.secret is not set: the Secret of type kubernetes.io/tls with the certificate that callers see" }}
{{- end }}
{{- if and $v.proxy.enabled $v.tls.secret }}
{{- fail "proxy and tls.secret are both set: the proxy asks the pods by plain HTTP, so leave tls.secret out" }}
{{- end }}
{{- if and $v.httpRoute.enabled (not $v.httpRoute.parentRefs) }}
{{- fail "httpRoute.parentRefs is empty: the Gateway that serves the route, such as [{name: public, namespace: gateways}]" }}
{{- end }}
{{- end }}
