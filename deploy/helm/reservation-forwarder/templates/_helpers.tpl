{{- define "forwarder.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 48 | trimSuffix "-" }}
{{- end }}

{{- define "forwarder.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 48 | trimSuffix "-" }}
{{- else if contains (include "forwarder.name" .) .Release.Name -}}
{{- .Release.Name | trunc 48 | trimSuffix "-" }}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "forwarder.name" .) | trunc 48 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The roles that keep running and serve HTTP: port; the stage whose database user each has; whether it takes requests for the
     lame-duck time once it is told to stop. Those that are off are left out. */}}
{{- define "forwarder.roles" -}}
ingress: {port: 8080, user: ingress, lameDuck: true, service: true}
worker: {port: 8081, user: worker, lameDuck: false, service: false}
query: {port: 8082, user: query, lameDuck: true, service: true}
notifier: {port: 8083, user: notifier, lameDuck: true, service: true}
housekeeping: {port: 8085, user: worker, lameDuck: false, service: false}
{{- if .Values.console.enabled }}
console: {port: 8084, user: operator, lameDuck: false, service: {{ eq (include "forwarder.console.loopback" .) "" }}}
{{- end }}
{{- end }}

{{- define "forwarder.console.loopback" -}}
{{- if not (or .Values.tls.secret .Values.console.plaintextBehindProxy) }}true{{ end }}
{{- end }}

{{/* What a component is selected by. Takes {root, component}. */}}
{{- define "forwarder.selector" -}}
app.kubernetes.io/name: {{ include "forwarder.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "forwarder.labels" -}}
{{ include "forwarder.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Takes {root, values}: a role may run another version than the rest, for the time of an upgrade. */}}
{{- define "forwarder.image" -}}
{{- $own := default dict .values.image }}
{{- $tag := default (default .root.Chart.AppVersion .root.Values.image.tag) $own.tag }}
{{- $digest := ternary $own.digest .root.Values.image.digest (or (hasKey $own "tag") (hasKey $own "digest")) }}
{{- .root.Values.image.repository }}{{ if $digest }}@{{ $digest }}{{ else }}:{{ $tag }}{{ end }}
{{- end }}

{{/* The files that a pod is given, each with the setting that names it: [{variable, path, secret, key}].
     Takes {root, component, user}; a user of the database, `owner` for jobs. */}}
{{- define "forwarder.files" -}}
{{- $v := .root.Values }}
{{- $account := ternary $v.database.owner (get $v.database.users .user) (eq .user "owner") }}
{{- $sasl := hasPrefix "SASL" $v.kafka.securityProtocol }}
{{- $encrypted := hasSuffix "SSL" $v.kafka.securityProtocol }}
{{- $knowsSecret := or (has .component (list "migrate" "worker")) (and (eq .component "operator") $v.operator.holdsSecretKey) (and (eq .component "console") $v.console.holdsSecretKey) }}
{{- $serves := hasKey (fromYaml (include "forwarder.roles" .root)) .component }}
- {variable: FORWARDER_DATABASE_PASSWORD_FILE, path: database-password, secret: {{ $account.password.secret }}, key: {{ $account.password.key }}}
{{- with $v.database.ca }}{{ if .secret }}
- {variable: "", path: database-ca.pem, secret: {{ .secret }}, key: {{ .key }}}
{{- end }}{{ end }}
{{- if and $sasl (eq $v.kafka.mechanism "OAUTHBEARER") }}
{{- with $v.kafka.oauth.clientSecret }}
- {variable: FORWARDER_KAFKA_SASL_OAUTH_CLIENT_SECRET_FILE, path: kafka-client-secret, secret: {{ .secret }}, key: {{ .key }}}
{{- end }}
{{- else if $sasl }}
{{- with $v.kafka.password }}
- {variable: FORWARDER_KAFKA_SASL_PASSWORD_FILE, path: kafka-password, secret: {{ .secret }}, key: {{ .key }}}
{{- end }}
{{- end }}
{{- if and $encrypted $v.kafka.ca.secret }}
- {variable: FORWARDER_KAFKA_CA_FILE, path: kafka-ca.pem, secret: {{ $v.kafka.ca.secret }}, key: {{ $v.kafka.ca.key }}}
{{- end }}
{{- if and $encrypted $v.kafka.clientCertificate.secret }}
{{- with $v.kafka.clientCertificate }}
- {variable: FORWARDER_KAFKA_CERTIFICATE_FILE, path: kafka-certificate.pem, secret: {{ .secret }}, key: {{ .certificateKey }}}
- {variable: FORWARDER_KAFKA_KEY_FILE, path: kafka-key.pem, secret: {{ .secret }}, key: {{ .keyKey }}}
{{- end }}
{{- end }}
{{- if $knowsSecret }}
- {variable: FORWARDER_SECRET_KEY_FILE, path: secret-key, secret: {{ $v.keys.secretKey.secret }}, key: {{ $v.keys.secretKey.key }}}
{{- with $v.keys.earlierSecretKeys }}{{ if .secret }}
- {variable: FORWARDER_EARLIER_SECRET_KEYS_FILE, path: earlier-secret-keys, secret: {{ .secret }}, key: {{ .key }}}
{{- end }}{{ end }}
{{- else if has .component (list "ingress" "console" "operator" "status" "topics") }}
{{- with $v.keys.sealingVerifyKey }}
- {variable: FORWARDER_SEALING_VERIFY_KEY_FILE, path: sealing-verify-key, secret: {{ .secret }}, key: {{ .key }}}
{{- end }}
{{- else if eq .component "notifier" }}
{{- with $v.keys.notifierKey }}
- {variable: FORWARDER_NOTIFIER_KEY_FILE, path: notifier-key, secret: {{ .secret }}, key: {{ .key }}}
{{- end }}
{{- end }}
{{- if and $serves $v.metricsToken.secret }}
- {variable: FORWARDER_METRICS_TOKEN_FILE, path: metrics-token, secret: {{ $v.metricsToken.secret }}, key: {{ $v.metricsToken.key }}}
{{- end }}
{{- if and $serves $v.tls.secret }}
- {variable: FORWARDER_TLS_CERTIFICATE_FILE, path: tls-certificate.pem, secret: {{ $v.tls.secret }}, key: {{ $v.tls.certificateKey }}}
- {variable: FORWARDER_TLS_KEY_FILE, path: tls-key.pem, secret: {{ $v.tls.secret }}, key: {{ $v.tls.keyKey }}}
{{- end }}
{{- end }}

{{- define "forwarder.database.user" -}}
{{- if eq .user "owner" -}}
{{- .root.Values.database.owner.user }}
{{- else -}}
{{- default (printf "%s_%s_1" .root.Values.database.name .user) (get .root.Values.database.users .user).user }}
{{- end }}
{{- end }}

{{- define "forwarder.database.ca" -}}
{{- if .Values.database.ca.secret }}/run/secrets/forwarder/database-ca.pem{{ else }}/etc/ssl/certs/ca-certificates.crt{{ end }}
{{- end }}

{{- define "forwarder.database.url" -}}
{{- $d := .root.Values.database -}}
postgresql://{{ include "forwarder.database.user" . }}@{{ $d.host }}:{{ $d.port }}/{{ $d.name }}?sslmode={{ $d.sslmode }}
{{- if or (hasPrefix "verify" $d.sslmode) (and $d.ca.secret (eq $d.sslmode "require")) }}&sslrootcert={{ include "forwarder.database.ca" .root }}{{ end }}
{{- end }}

{{/* The settings of a pod, as environment. Takes {root, component, user, values}. */}}
{{- define "forwarder.environment" -}}
{{- $v := .root.Values }}
{{- $sasl := hasPrefix "SASL" $v.kafka.securityProtocol }}
{{- $lame := get (default dict (get (fromYaml (include "forwarder.roles" .root)) .component)) "lameDuck" }}
- {name: FORWARDER_KAFKA_BOOTSTRAP_SERVERS, value: {{ $v.kafka.bootstrapServers | quote }}}
- {name: FORWARDER_KAFKA_SECURITY_PROTOCOL, value: {{ $v.kafka.securityProtocol }}}
{{- if $sasl }}
- {name: FORWARDER_KAFKA_SASL_MECHANISM, value: {{ $v.kafka.mechanism }}}
{{- if eq $v.kafka.mechanism "OAUTHBEARER" }}
{{- with $v.kafka.oauth }}
- {name: FORWARDER_KAFKA_SASL_OAUTH_TOKEN_URL, value: {{ .tokenUrl | quote }}}
- {name: FORWARDER_KAFKA_SASL_OAUTH_CLIENT_ID, value: {{ .clientId | quote }}}
{{- if .scope }}
- {name: FORWARDER_KAFKA_SASL_OAUTH_SCOPE, value: {{ .scope | quote }}}
{{- end }}
{{- end }}
{{- else }}
- {name: FORWARDER_KAFKA_SASL_USERNAME, value: {{ $v.kafka.username | quote }}}
{{- end }}
{{- end }}
- {name: FORWARDER_MEMBER_NAME, value: "{hostname}"}
- {name: FORWARDER_TOPIC_PREFIX, value: {{ $v.kafka.topicPrefix | quote }}}
- {name: FORWARDER_PARTITIONS, value: {{ $v.kafka.partitions | int | quote }}}
- {name: FORWARDER_DATABASE_URL, value: {{ include "forwarder.database.url" . | quote }}}
{{- if $v.allowPlaintext }}
- {name: FORWARDER_ALLOW_PLAINTEXT, value: "true"}
{{- end }}
{{- range fromYamlArray (include "forwarder.files" .) }}
{{- if .variable }}
- {name: {{ .variable }}, value: /run/secrets/forwarder/{{ .path }}}
{{- end }}
{{- end }}
{{- if .values.graceSeconds }}
- {name: FORWARDER_GRACE_SECONDS, value: {{ .values.graceSeconds | quote }}}
{{- end }}
{{- if $lame }}
- {name: FORWARDER_LAME_DUCK_SECONDS, value: {{ $v.lameDuckSeconds | quote }}}
{{- end }}
{{- if $v.trustedProxies }}
- {name: FORWARDER_TRUSTED_PROXIES, value: {{ join "," $v.trustedProxies | quote }}}
{{- end }}
{{- if $v.publicUrl }}
- {name: FORWARDER_PUBLIC_URL, value: {{ $v.publicUrl | quote }}}
{{- end }}
{{- if and (eq .component "console") $v.console.plaintextBehindProxy (not $v.tls.secret) }}
- {name: FORWARDER_CONSOLE_PLAINTEXT, value: "true"}
{{- end }}
{{- if and $v.traces.endpoint (hasKey (fromYaml (include "forwarder.roles" .root)) .component) }}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ $v.traces.endpoint | quote }}}
{{- range $name, $value := $v.traces.variables }}
- {name: {{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end }}
- {name: FORWARDER_LOG_FORMAT, value: json}
{{- range $name, $value := merge (dict) (default dict .values.settings) $v.settings }}
- {name: {{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end }}

{{/* What every pod of ours is: nobody in particular, who may do nothing. Takes {root, values}. */}}
{{- define "forwarder.pod" -}}
automountServiceAccountToken: false
# A Service whose name begins with `forwarder` would add variables that are refused as unknown settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with default .root.Values.nodeSelector .values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with default .root.Values.tolerations .values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with default .root.Values.affinity .values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "forwarder.container.security" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "forwarder.mounts" -}}
volumeMounts:
  - {name: secrets, mountPath: /run/secrets/forwarder, readOnly: true}
  - {name: tmp, mountPath: /tmp}
  - {name: data, mountPath: /var/lib/forwarder}
{{- end }}

{{/* Takes {root, component, user}. */}}
{{- define "forwarder.volumes" -}}
volumes:
  - name: secrets
    projected:
      defaultMode: 0440
      sources:
        {{- range fromYamlArray (include "forwarder.files" .) }}
        - secret: {name: {{ .secret }}, items: [{key: {{ .key | quote }}, path: {{ .path }}}]}
        {{- end }}
  - {name: tmp, emptyDir: {sizeLimit: 64Mi}}
  - {name: data, emptyDir: {sizeLimit: 64Mi}}
{{- end }}

{{- define "forwarder.spread" -}}
topologySpreadConstraints:
{{- if .root.Values.topologySpreadConstraints }}
{{- range .root.Values.topologySpreadConstraints }}
  - {{ toYaml (merge (dict "labelSelector" (dict "matchLabels" (fromYaml (include "forwarder.selector" $)))) .) | nindent 4 | trim }}
{{- end }}
{{- else }}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "forwarder.selector" $ | nindent 8 }}
{{- end }}
{{- end }}
{{- end }}

{{- define "forwarder.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "forwarder.fullname" .) .Values.serviceAccount.name }}{{ else }}{{ default "default" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{/* Of what jobs need: there before each install and upgrade, those with a lower weight first; gone once it is done. */}}
{{- define "forwarder.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
