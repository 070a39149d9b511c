{{- define "paddlecloud.labels" -}}
app.kubernetes.io/name: paddlecloud
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
{{/* The objects that an account needs, also one of a server outside the cluster: `kubectl apply -l` selects them. */}}
{{- define "paddlecloud.rightsLabels" -}}
{{ include "paddlecloud.labels" . }}
app.kubernetes.io/component: rights
{{- end -}}
{{- define "paddlecloud.role" -}}
{{ .Release.Namespace }}-{{ .Release.Name }}
{{- end -}}
{{/* Also the value of a label, hence the length. */}}
{{- define "paddlecloud.namespaceRole" -}}
{{ printf "%s-%s-users" .Release.Namespace .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end -}}
{{- define "paddlecloud.volume" -}}
{{- if .claim -}}
persistentVolumeClaim: {claimName: {{ .claim }}}
{{- else if .nfs -}}
nfs: {{ toJson .nfs }}
{{- else -}}
hostPath: {path: {{ .hostPath }}, type: DirectoryOrCreate}
{{- end -}}
{{- end -}}
{{- define "paddlecloud.adminSecret" -}}
{{ .Values.adminSecret | default (printf "%s-admin" .Release.Name) }}
{{- end -}}
{{- define "paddlecloud.scheme" -}}
{{ ternary "https" "http" (or (ne .Values.tlsSecret "") (not (empty .Values.settings.tls))) }}
{{- end -}}
