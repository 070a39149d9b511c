{{- define "paddlecloud.labels" -}}
app.kubernetes.io/name: paddlecloud
app.kubernetes.io/instance: {{ .Release.Name }}
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
